module skill

go 1.21
