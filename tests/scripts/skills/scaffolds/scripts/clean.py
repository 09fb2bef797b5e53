import shutil
import sys

shutil.rmtree(sys.argv[1])
print(f"Removed {sys.argv[1]}")
