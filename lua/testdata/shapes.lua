-- Parameters and shapes of every type of layer, compared with PyTorch's formulas on random arguments, and
-- shapes that do not fit.
local strata = require "strata"
local expect = require "expect"
local nn = strata.nn

local function any(...) return (select(math.random(select("#", ...)), ...)) end

-- The plan of this single layer for samples of this shape.
local function plan(layer, shape, dtype)
  return strata.job{
    input = {shape = shape, dtype = dtype},
    layers = {layer},
    batch = {micro_batches = 1, micro_batch_size = 2},
    device = "cpu",
  }:plan{}
end

local function output(layer, shape, dtype) return plan(layer, shape, dtype).layers[1].output[1].shape end

local function product(list)
  local p = 1
  for _, n in ipairs(list) do p = p * n end
  return p
end

-- Linear works on the last dim, with any dims before it.
for _ = 1, 50 do
  local i, o, bias = math.random(20), math.random(20), any(true, false)
  local layer = nn.Linear{i, o, bias = bias}
  expect.equal(layer.parameters, i * o + (bias and o or 0))
  expect.equal(output(layer, {i}), {2, o})
  expect.equal(output(layer, {3, 1, i}), {2, 3, 1, o})
end

-- Convolutions and pools: (n + 2p - d(k-1) - 1) / s + 1 for each spatial dim.
local function out(n, k, s, p, d) return math.floor((n + 2 * p - d * (k - 1) - 1) / s) + 1 end

for _ = 1, 100 do
  local groups = any(1, 1, 2)
  local i, o = groups * math.random(4), groups * math.random(4)
  local kh, kw = math.random(3), math.random(3)
  local sh, sw, ph, pw = math.random(3), math.random(3), math.random(0, 2), math.random(0, 2)
  local d, bias = math.random(2), any(true, false)
  local h, w = math.random(6, 12), math.random(6, 12)
  local conv = nn.Conv2d{i, o, {kh, kw}, stride = {sh, sw}, padding = {ph, pw}, dilation = d,
    groups = groups, bias = bias}
  expect.equal(conv.parameters, o * i / groups * kh * kw + (bias and o or 0))
  expect.equal(output(conv, {i, h, w}), {2, o, out(h, kh, sh, ph, d), out(w, kw, sw, pw, d)})
  local conv1 = nn.Conv1d{i, o, kw, stride = sw, padding = pw, dilation = d, groups = groups, bias = bias}
  expect.equal(conv1.parameters, o * i / groups * kw + (bias and o or 0))
  expect.equal(output(conv1, {i, w}), {2, o, out(w, kw, sw, pw, d)})
end

for _ = 1, 50 do
  local i, o, k, s = math.random(4), math.random(4), math.random(3), math.random(3)
  local p = math.random(0, k - 1)
  local extra = math.random(0, s - 1)
  local n = math.random(4, 9)
  local up = nn.ConvTranspose2d{i, o, k, stride = s, padding = p, output_padding = extra}
  local size = (n - 1) * s - 2 * p + k + extra
  expect.equal(up.parameters, i * o * k * k + o)
  expect.equal(output(up, {i, n, n}), {2, o, size, size})
end

for _ = 1, 50 do
  local k, s, n = math.random(4), math.random(4), math.random(6, 12)
  local p = math.random(0, math.floor(k / 2))
  local size = out(n, k, s, p, 1)
  expect.equal(output(nn.MaxPool2d{k, stride = s, padding = p}, {3, n, n}), {2, 3, size, size})
  expect.equal(output(nn.AvgPool2d{k, stride = s, padding = p}, {3, n, n}), {2, 3, size, size})
  expect.equal(output(nn.MaxPool2d{k}, {3, n, n}), {2, 3, out(n, k, k, 0, 1), out(n, k, k, 0, 1)})
end

-- "same" padding keeps the size; "valid" padding is none.
for k = 1, 5 do
  expect.equal(output(nn.Conv2d{2, 3, k, padding = "same"}, {2, 9, 8}), {2, 3, 9, 8})
  expect.equal(output(nn.Conv1d{2, 3, k, padding = "valid"}, {2, 9}), {2, 3, 10 - k})
end

-- Layers whose output has the shape of the input.
for _, layer in ipairs{
  nn.ReLU{}, nn.GELU{}, nn.SiLU{}, nn.Tanh{}, nn.Sigmoid{}, nn.Identity{}, nn.LeakyReLU{},
  nn.ELU{}, nn.Softplus{}, nn.Hardtanh{}, nn.Threshold{0, 1}, nn.PReLU{3}, nn.LogSoftmax{},
  nn.Softmax{dim = 1}, nn.Dropout{0.1}, nn.LayerNorm{5}, nn.RMSNorm{5}, nn.LayerNorm{{4, 5}},
  nn.BatchNorm2d{3}, nn.GroupNorm{3, 3}, nn.Residual{nn.ReLU{}, nn.Linear{5, 5}},
} do
  expect.equal(output(layer, {3, 4, 5}), {2, 3, 4, 5})
end

-- The parameters of norms.
for _, case in ipairs{
  {nn.LayerNorm{{4, 5}}, 40}, {nn.LayerNorm{{4, 5}, bias = false}, 20},
  {nn.LayerNorm{7, elementwise_affine = false}, 0}, {nn.RMSNorm{7}, 7},
  {nn.RMSNorm{7, elementwise_affine = false}, 0}, {nn.BatchNorm2d{6}, 12},
  {nn.BatchNorm2d{6, affine = false}, 0}, {nn.GroupNorm{2, 6}, 12},
  {nn.GroupNorm{2, 6, affine = false}, 0}, {nn.Embedding{10, 4}, 40},
  {nn.Embedding{10, 4, padding_idx = -1}, 40},
} do
  expect.equal(case[1].parameters, case[2])
end

-- Attention and Transformers: projections have 4 e^2 parameters, feed-forward 2 e f; there are two norms.
for _ = 1, 30 do
  local heads = math.random(3)
  local e, f, bias = heads * math.random(4), math.random(12), any(true, false)
  local b = bias and 1 or 0
  local attention = 4 * e * e + b * 4 * e
  expect.equal(nn.MultiheadAttention{e, heads, bias = bias}.parameters, attention)
  local encoder = nn.TransformerEncoderLayer{e, heads, f, bias = bias}
  local feed_forward = 2 * e * f + b * (e + f)
  expect.equal(encoder.parameters, attention + feed_forward + 2 * (e + b * e))
  expect.equal(output(encoder, {5, e}), {2, 5, e})
  local decoder = nn.TransformerDecoderLayer{e, heads, f, bias = bias}
  expect.equal(decoder.parameters, 2 * attention + feed_forward + 3 * (e + b * e))
  expect.equal(output(decoder, {5, e}), {2, 5, e})
end

-- Reshaping keeps the number of elements.
for _ = 1, 30 do
  local shape = {math.random(4), math.random(4), math.random(4)}
  local flat = output(nn.Flatten{}, shape)
  expect.equal(flat, {2, product(shape)})
  expect.equal(output(nn.Flatten{start_dim = 2}, shape), {2, shape[1], shape[2] * shape[3]})
  expect.equal(output(nn.Flatten{1, 2}, shape), {2, shape[1] * shape[2], shape[3]})
  expect.equal(output(nn.Unflatten{1, {shape[1], -1}}, {shape[1] * shape[2]}), {2, shape[1], shape[2]})
end

-- Embeddings replace indices by vectors.
expect.equal(output(nn.Embedding{10, 4}, {5}, "int64"), {2, 5, 4})
expect.equal(output(nn.AdaptiveAvgPool2d{{2, 3}}, {4, 7, 7}), {2, 4, 2, 3})
expect.equal(output(nn.AdaptiveAvgPool2d{1}, {4, 7, 7}), {2, 4, 1, 1})

-- A container has the parameters of all its layers and the output shape of the last.
local mlp = nn.Sequential{nn.Linear{8, 16}, nn.ReLU{}, nn.Sequential{nn.Linear{16, 4}, nn.Tanh{}}}
expect.equal(mlp.parameters, 8 * 16 + 16 + 16 * 4 + 4)
expect.equal(output(mlp, {8}), {2, 4})
expect.equal(nn.Residual{mlp, nn.Linear{4, 8}}.parameters, mlp.parameters + 40)

-- The error for an input that does not fit names the layer and the shape.
local function misfit(layer, shape, ...)
  local dtype = type(shape[#shape]) == "string" and table.remove(shape) or nil
  return {function() plan(layer, shape, dtype) end, "shapes.lua:", ...}
end
expect.errors{
  misfit(nn.Linear{8, 4}, {7}, "Linear(8, 4", "7"),
  misfit(nn.Linear{8, 4}, {8, "int64"}, "Linear", "int64"),
  misfit(nn.Conv2d{3, 4, 3}, {2, 8, 8}, "Conv2d(3, 4", "2"),
  misfit(nn.Conv2d{3, 4, 3}, {3, 8}, "Conv2d"),
  misfit(nn.Conv2d{3, 4, 9}, {3, 8, 8}, "Conv2d"),
  misfit(nn.Conv1d{3, 4, 3}, {3, 8, 8}, "Conv1d"),
  misfit(nn.MaxPool2d{9}, {3, 8, 8}, "MaxPool2d"),
  misfit(nn.LayerNorm{{4, 5}}, {5, 4}, "LayerNorm"),
  misfit(nn.RMSNorm{6}, {5}, "RMSNorm"),
  misfit(nn.BatchNorm2d{4}, {3, 8, 8}, "BatchNorm2d"),
  misfit(nn.BatchNorm2d{4}, {4}, "BatchNorm2d"),
  misfit(nn.GroupNorm{2, 4}, {6, 3}, "GroupNorm"),
  misfit(nn.Embedding{10, 4}, {5}, "Embedding", "float32"),
  misfit(nn.TransformerEncoderLayer{8, 2}, {5, 6}, "TransformerEncoderLayer"),
  misfit(nn.MultiheadAttention{8, 2}, {5, 6}, "MultiheadAttention"),
  misfit(nn.Unflatten{1, {3, -1}}, {8}, "Unflatten"),
  misfit(nn.Flatten{3, 4}, {2, 2}, "Flatten"),
  misfit(nn.Residual{nn.Linear{8, 4}}, {8}, "Residual"),
  misfit(nn.Sequential{nn.Linear{8, 4}, nn.Linear{5, 1}}, {8}, "Linear(5, 1"),
}

-- A layer that no input could fit is refused where it is written.
expect.errors{
  {function() nn.Conv2d{3, 4, 3, groups = 2} end, "Conv2d", "groups"},
  {function() nn.Conv2d{4, 3, 3, groups = 2} end, "Conv2d", "groups"},
  {function() nn.Conv2d{4, 3, {3, 3, 3}} end, "kernel_size"},
  {function() nn.Conv2d{4, 3, 0} end, "kernel_size"},
  {function() nn.Conv2d{4, 3, 3, padding = "sam"} end, "padding", '"sam"'},
  {function() nn.Conv2d{4, 3, 3, padding = "same", stride = 2} end, "same"},
  {function() nn.Conv2d{4, 3, 3, padding_mode = "reflekt"} end, "padding_mode", "reflect"},
  {function() nn.GroupNorm{4, 6} end, "GroupNorm"},
  {function() nn.MultiheadAttention{8, 3} end, "MultiheadAttention"},
  {function() nn.TransformerEncoderLayer{8, 3} end, "TransformerEncoderLayer"},
  {function() nn.TransformerEncoderLayer{8, 2, activation = "rely"} end, "activation", "relu"},
  {function() nn.Embedding{10, 4, padding_idx = 10} end, "padding_idx"},
  {function() nn.Dropout{1.5} end, "p", "1.5"},
  {function() nn.Dropout{-0.1} end, "p", "-0.1"},
  {function() nn.LayerNorm{{}} end, "shapes.lua:", "normalized_shape is empty"},
  {function() nn.RMSNorm{{}} end, "shapes.lua:", "normalized_shape is empty"},
  {function() nn.Unflatten{1, {-1, -1}} end, "unflattened_size"},
  {function() nn.MaxPool2d{2, padding = 2} end, "padding"},
  {function() nn.AvgPool2d{2, divisor_override = 0} end, "divisor_override"},
  {function() nn.Linear{8, 4, dtype = "float33"} end, "float33", "float32"},
  {function() nn.Linear{8, 4, name = 7} end, "name"},
  {function() nn.Residual{} end, "Residual"},
}
