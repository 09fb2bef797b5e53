"""What does a plan look like? `layout` places boxes, `svg` and `mermaid` draw them."""
