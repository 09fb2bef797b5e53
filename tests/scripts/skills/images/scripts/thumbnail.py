import argparse
import pathlib

from PIL import Image

parser = argparse.ArgumentParser()
parser.add_argument("path", type=pathlib.Path)
parser.add_argument("--width", type=int, default=128)
options = parser.parse_args()
image = Image.open(options.path)
image.thumbnail((options.width, options.width))
target = options.path.with_name(f"{options.path.stem}-small.png")
image.save(target)
print(f"{target}: {image.width}x{image.height}")
