import glob
import os
import sys

for path in sorted(glob.glob(sys.argv[1])):
    target = os.path.splitext(path)[0] + sys.argv[2]
    os.rename(path, target)
    print(f"{path} -> {target}")
