import os
import sys
import urllib.request

token = os.environ.get("REPORT_TOKEN")
if not token:
    sys.exit("REPORT_TOKEN is not set")
request = urllib.request.Request(sys.argv[1], headers={"Authorization": f"Bearer {token}"})
with urllib.request.urlopen(request, timeout=10) as answer:
    print(answer.read().decode())
print(f"used token {token}")
