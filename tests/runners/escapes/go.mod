module escapes

go 1.21
