"""A network as one callable: `memory` plans its arena, `kernels` compiles its operators, `model` runs them."""
