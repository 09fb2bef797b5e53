"""Drawings of plans: `layout` places boxes, `svg` writes SVG and Mermaid, `labels` the texts."""
