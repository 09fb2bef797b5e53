"""Writes the ONNX graph of a BERT, node by node, in numbers of 32 bits or of 8.

The 8-bit form is the one that runtimes know: each layer's input is measured and rounded when it
arrives, its weights were rounded beforehand, column by column, and the products are whole numbers.
The result is the mean over the tokens, at length one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

_OPSET = 20
_FAR = 1e9
"""Taken from the attention of what only fills up a line."""


class Shape(NamedTuple):
    """What a BERT's `config.json` says."""

    layers: int
    heads: int
    hidden: int
    epsilon: float


class BertGraph:
    """Builds one graph."""

    def __init__(self, modules: tuple[Any, Any], shape: Shape, weights: dict[str, Any]) -> None:
        """Take the tools and the weights.

        Args:
            modules: `onnx` and `numpy`.
            shape: The sizes.
            weights: Tensors by their name in a BERT.
        """
        self._onnx, self._np = modules
        self._shape = shape
        self._weights = weights
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}
        self._rounded: dict[str, tuple[str, ...]] = {}
        self._limit = 0

    def build(self, limit: int = 0) -> bytes:
        """The whole model as the bytes of an ONNX file.

        Args:
            limit: The largest weight as a whole number (127, or 63 for processors whose sums of
                bytes overflow); 0 keeps 32 bits.
        """
        self._nodes, self._constants, self._rounded = [], {}, {}
        self._limit = limit
        self._mean(self._layers(self._embeddings()))
        helper, kinds = self._onnx.helper, self._onnx.TensorProto
        inputs = [
            helper.make_tensor_value_info(name, kinds.INT64, ["texts", "tokens"])
            for name in ("input_ids", "attention_mask")
        ]
        output = helper.make_tensor_value_info(
            "sentence_embedding", kinds.FLOAT, ["texts", self._shape.hidden]
        )
        constants = [
            self._onnx.numpy_helper.from_array(self._np.ascontiguousarray(value), name)
            for name, value in self._constants.items()
        ]
        graph = helper.make_graph(self._nodes, "bert", inputs, [output], constants)
        opset = [helper.make_opsetid("", _OPSET)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=9)
        self._onnx.checker.check_model(model)
        return model.SerializeToString()

    # --- the parts of a BERT ---

    def _embeddings(self) -> str:
        length = self._op("Gather", self._op("Shape", "input_ids"), self._const("one", [1]))
        zero = self._const("zero", [0])
        places = self._op(
            "Slice", self._weight("embeddings.position_embeddings.weight"), zero, length, zero
        )
        words = self._words()
        kinds = self._weights["embeddings.token_type_embeddings.weight"][0]
        x = self._op("Add", self._op("Add", words, places), self._float("kind", kinds))
        return self._norm(x, "embeddings.LayerNorm")

    def _words(self) -> str:
        """The rows of the tokens. Rounded, the table is most of what a small model saves."""
        name = "embeddings.word_embeddings.weight"
        if not self._limit:
            return self._op("Gather", self._weight(name), "input_ids")
        table, scale = self._round(self._weights[name], axis=1)
        rows = self._op("Gather", self._const(name, table), "input_ids")
        scales = self._op("Gather", self._const(f"{name}.scale", scale), "input_ids")
        return self._op("Mul", self._cast(rows), scales)

    def _layers(self, x: str) -> str:
        np, shape = self._np, self._shape
        size = shape.hidden // shape.heads
        mask = self._cast("attention_mask")
        away = self._op("Sub", mask, self._float("whole", np.float32(1)))
        away = self._op("Mul", away, self._float("far", np.float32(_FAR)))
        away = self._op("Unsqueeze", away, self._const("middle", [1, 2]))
        apart = self._const("apart", [0, 0, shape.heads, size])
        together = self._const("together", [0, 0, shape.hidden])
        scale = self._float("scale", np.float32(size**-0.5))
        for at in range(shape.layers):
            name = f"encoder.layer.{at}."
            query, key, value = (
                self._op("Reshape", self._linear(x, f"{name}attention.self.{part}"), apart)
                for part in ("query", "key", "value")
            )
            query = self._op("Transpose", query, perm=[0, 2, 1, 3])
            key = self._op("Transpose", key, perm=[0, 2, 3, 1])
            value = self._op("Transpose", value, perm=[0, 2, 1, 3])
            near = self._op("Mul", self._op("MatMul", query, key), scale)
            near = self._op("Softmax", self._op("Add", near, away), axis=-1)
            seen = self._op("Transpose", self._op("MatMul", near, value), perm=[0, 2, 1, 3])
            seen = self._op("Reshape", seen, together)
            seen = self._linear(seen, f"{name}attention.output.dense")
            x = self._norm(self._op("Add", seen, x), f"{name}attention.output.LayerNorm")
            wide = self._op("Gelu", self._linear(x, f"{name}intermediate.dense"))
            narrow = self._linear(wide, f"{name}output.dense")
            x = self._norm(self._op("Add", narrow, x), f"{name}output.LayerNorm")
        return x

    def _mean(self, x: str) -> None:
        mask = self._cast("attention_mask")
        wide = self._op("Unsqueeze", mask, self._const("last", [2]))
        one = self._const("one", [1])
        total = self._op("ReduceSum", self._op("Mul", x, wide), one, keepdims=0)
        mean = self._op("Div", total, self._op("ReduceSum", mask, one, keepdims=1))
        self._op("LpNormalization", mean, axis=-1, p=2)
        self._nodes[-1].output[0] = "sentence_embedding"

    def _linear(self, x: str, name: str) -> str:
        weight = self._weights[f"{name}.weight"].astype(self._np.float32).T
        bias = self._weight(f"{name}.bias")
        if not self._limit:
            return self._op("Add", self._op("MatMul", x, self._const(name, weight)), bias)
        if x not in self._rounded:  # query, key and value share their input
            self._rounded[x] = self._several("DynamicQuantizeLinear", x, outputs=3)
        small, size, middle = self._rounded[x]
        table, scale = self._round(weight, axis=0)
        product = self._op("MatMulInteger", small, self._const(name, table), middle)
        sizes = self._op("Mul", size, self._const(f"{name}.scale", scale.reshape(-1)))
        return self._op("Add", self._op("Mul", self._cast(product), sizes), bias)

    def _norm(self, x: str, name: str) -> str:
        return self._op(
            "LayerNormalization",
            x,
            self._weight(f"{name}.weight"),
            self._weight(f"{name}.bias"),
            axis=-1,
            epsilon=self._shape.epsilon,
        )

    # --- the parts of a graph ---

    def _round(self, table: Any, axis: int) -> tuple[Any, Any]:
        """A table in whole numbers, and what each row or column is to be multiplied by."""
        np = self._np
        table = table.astype(np.float32)
        scale = np.maximum(np.abs(table).max(axis=axis, keepdims=True), 1e-12) / self._limit
        return np.rint(table / scale).astype(np.int8), scale.astype(np.float32)

    def _op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self._several(kind, *inputs, **attributes)[0]

    def _several(
        self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any
    ) -> tuple[str, ...]:
        name = f"n{len(self._nodes)}"
        made = tuple(f"{name}.{at}" for at in range(outputs))
        node = self._onnx.helper.make_node(kind, inputs, made, name=name, **attributes)
        self._nodes.append(node)
        return made

    def _cast(self, x: str) -> str:
        return self._op("Cast", x, to=self._onnx.TensorProto.FLOAT)

    def _weight(self, name: str) -> str:
        return self._float(name, self._weights[name])

    def _float(self, name: str, value: Any) -> str:
        return self._const(name, self._np.asarray(value, dtype=self._np.float32))

    def _const(self, name: str, value: Any) -> str:
        self._constants[name] = (
            self._np.array(value, self._np.int64) if isinstance(value, list) else value
        )
        return name
