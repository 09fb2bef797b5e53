import sys

print("before the fault")
print("warning: about to fail", file=sys.stderr)
raise ValueError("the log has no time zone")
