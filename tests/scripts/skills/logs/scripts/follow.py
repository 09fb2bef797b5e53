import sys
import time

for second in range(int(sys.argv[1])):
    print(f"tick {second}", flush=True)
    time.sleep(0.2)
