package main

import (
    "bufio"
    "encoding/json"
    "fmt"
    "os"
)

type Request struct {
    Arguments map[string]any `json:"arguments"`
}
type Response struct {
    Output string `json:"output"`
    Error  string `json:"error"`
}

func run(args map[string]any) Response {
    // 实现逻辑
    return Response{Output: "结果"}
}

func main() {
    scanner := bufio.NewScanner(os.Stdin)
    scanner.Scan()
    var req Request
    if err := json.Unmarshal(scanner.Bytes(), &req); err != nil {
        resp := Response{Error: fmt.Sprintf("参数解析失败: %v", err)}
        json.NewEncoder(os.Stdout).Encode(resp)
        return
    }
    json.NewEncoder(os.Stdout).Encode(run(req.Arguments))
}
