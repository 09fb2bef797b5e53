import shutil
import sys

print(shutil.make_archive(sys.argv[2].removesuffix(".zip"), "zip", sys.argv[1]))
