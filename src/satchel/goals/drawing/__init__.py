"""Drawings of plans: `layout` places boxes, `svg` writes SVG, `labels` the texts."""
