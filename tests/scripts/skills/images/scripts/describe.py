import sys

from PIL import Image

image = Image.open(sys.argv[1]).convert("RGB")
count, colour = max(image.getcolors(maxcolors=1 << 24))
print(f"{image.width}x{image.height}, {count} pixels of #{colour[0]:02x}{colour[1]:02x}{colour[2]:02x}")
