"""What is shown, as plain records made from the library, the store and the goals.

A hub can show the same records: nothing here knows a browser, a session or a template.
"""
