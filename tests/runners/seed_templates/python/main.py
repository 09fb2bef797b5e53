import sys, json

def run(arguments: dict) -> dict:
    # 实现逻辑
    return {"output": "结果", "error": ""}

if __name__ == "__main__":
    req = json.loads(sys.stdin.readline())
    result = run(req.get("arguments", {}))
    print(json.dumps(result, ensure_ascii=False))
