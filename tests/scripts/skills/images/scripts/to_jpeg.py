import pathlib
import sys

from PIL import Image

folder = pathlib.Path("jpeg")
folder.mkdir(exist_ok=True)
for name in sys.argv[1:]:
    target = folder / f"{pathlib.Path(name).stem}.jpg"
    Image.open(name).convert("RGB").save(target, quality=80)
    print(target)
