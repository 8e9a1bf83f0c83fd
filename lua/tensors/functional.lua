-- The functions of torch.nn.functional, torch.nn.init and torch that are more than one operator of the same name. They
-- are composed of operators as in PyTorch. Each gets all its arguments in the order of signatures.txt, already checked
-- and with defaults filled in; a single number for a list of fixed length has been expanded to that list.
--
-- The bodies see these globals, and a few functions of base Lua:
--   aten.NAME(...)                      any operator of LibTorch
--   fail(...)                           raises an error at the script's line
--   one_of(argument, word, {words})     the position of the word in the list, from 0
--   no_grad(f)                          calls f without recording gradients
--   refuse_all_pairs(name, tensor, ...) fails if a loss would compare a column with a row; the operators of losses
--                                       check that themselves
local F = {}

local function floor(x) return x - x % 1 end

local function product(list, first)
  local all = 1
  for i = first or 1, #list do all = all * list[i] end
  return all
end

-- The reduction as a word. size_average and reduce are PyTorch's older arguments for the same.
local function reduction_word(size_average, reduce, reduction)
  if size_average ~= nil or reduce ~= nil then
    if reduce == false then return "none" end
    return size_average == false and "sum" or "mean"
  end
  one_of("reduction", reduction, {"none", "mean", "sum"})
  return reduction
end

local function reduced(loss, reduction)
  if reduction == "none" then return loss end
  return reduction == "mean" and loss:mean() or loss:sum()
end

-- Reduces an elementwise loss that has a weight for each element.
local function weighted(loss, weight, input, reduction)
  if not weight:is_same_size(input) then fail("weight and input must have the same size") end
  loss = loss * weight
  if reduction == "mean" then return loss:sum() / weight:sum() end
  return reduced(loss, reduction)
end

local function check_margin(margin)
  if margin <= 0 then fail("margin must be greater than 0, got ", margin) end
end

-- Functions whose last argument is `inplace`, each with the name of its operator.
local switched = {
  alpha_dropout = "alpha_dropout", celu = "celu", dropout = "dropout", dropout2d = "feature_dropout",
  elu = "elu", feature_alpha_dropout = "feature_alpha_dropout", hardsigmoid = "hardsigmoid",
  hardswish = "hardswish", hardtanh = "hardtanh", leaky_relu = "leaky_relu", mish = "mish",
  relu = "relu", relu6 = "relu6", rrelu = "rrelu", selu = "selu", silu = "silu",
  threshold = "threshold",
}
for name, operator in pairs(switched) do
  F[name] = function(...)
    local arguments, inplace = {...}, select("#", ...)
    return aten[operator .. (arguments[inplace] and "_" or "")](unpack(arguments, 1, inplace - 1))
  end
end

local hardtanh = F.hardtanh
function F.hardtanh(input, min_val, max_val, inplace)
  if min_val > max_val then fail("min_val must not be above max_val, got ", min_val, " and ", max_val) end
  return hardtanh(input, min_val, max_val, inplace)
end

-- Drops whole channels of samples with `spatial` spatial dims; a single sample may have no batch dim.
local function channel_dropout(spatial)
  return function(input, p, training, inplace)
    local dims = input:dim()
    if dims ~= spatial + 1 and dims ~= spatial + 2 then
      fail("expected an input of ", spatial + 1, " or ", spatial + 2, " dims, got ", dims)
    end
    if dims == spatial + 2 then return F.dropout2d(input, p, training, inplace) end
    local y = F.dropout2d(input:unsqueeze(0), p, training, inplace):squeeze(0)
    return inplace and input or y
  end
end
F.dropout1d = channel_dropout(1)
F.dropout3d = channel_dropout(3)

-- Activations.

F.logsigmoid = aten.log_sigmoid

function F.softsign(input) return input / (input:abs() + 1) end

function F.tanhshrink(input) return input - input:tanh() end

local function softmax_dim(input)
  local dims = input:dim()
  return (dims == 0 or dims == 1 or dims == 3) and 0 or 1
end

function F.softmax(input, dim, _, dtype)
  return aten.softmax(input, dim or softmax_dim(input), dtype)
end

function F.log_softmax(input, dim, _, dtype)
  return aten.log_softmax(input, dim or softmax_dim(input), dtype)
end

function F.softmin(input, dim, _, dtype)
  return aten.softmax(-input, dim or softmax_dim(input), dtype)
end

function F.gumbel_softmax(logits, tau, hard, _, dim)
  local noise = -aten.empty_like(logits, {memory_format = "contiguous_format"}):exponential_():log()
  local soft = ((logits + noise) / tau):softmax(dim)
  if not hard then return soft end
  local _, index = soft:max(dim, true)
  return aten.zeros_like(logits):scatter(dim, index, 1) - soft:detach() + soft
end

-- Embeddings.

local function renormalize(weight, input, max_norm, norm_type)
  if max_norm then aten.embedding_renorm_(weight:detach(), input:contiguous(), max_norm, norm_type) end
end

function F.embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
  local rows = weight:size(0)
  if padding_idx and (padding_idx >= rows or padding_idx < -rows) then
    fail("padding_idx must be within the ", rows, " rows of weight, got ", padding_idx)
  end
  if padding_idx and padding_idx < 0 then padding_idx = padding_idx + rows end
  renormalize(weight, input, max_norm, norm_type)
  return aten.embedding(weight, input, padding_idx or -1, scale_grad_by_freq, sparse)
end

-- The input as one row, and the offset at which each bag begins.
local function bags(input, offsets)
  if input:dim() == 1 then
    if not offsets then fail("an input of 1 dim needs offsets, where each bag begins") end
    return input, offsets
  end
  if input:dim() ~= 2 then fail("expected an input of 1 or 2 dims, got ", input:dim()) end
  if offsets then fail("an input of 2 dims has a bag in each row: it takes no offsets") end
  offsets = aten.arange(0, input:numel(), input:size(1), {dtype = input.dtype, device = input.device})
  return input:reshape(-1), offsets
end

function F.embedding_bag(input, weight, offsets, max_norm, norm_type, scale_grad_by_freq, mode, sparse,
                         per_sample_weights, include_last_offset, padding_idx)
  if per_sample_weights then
    if not input:is_same_size(per_sample_weights) then
      fail("per_sample_weights must have the same shape as input")
    end
    if mode ~= "sum" then fail('per_sample_weights need mode "sum", got "', mode, '"') end
    per_sample_weights = per_sample_weights:reshape(-1)
  end
  local number = one_of("mode", mode, {"sum", "mean", "max"})
  if mode == "max" and scale_grad_by_freq then fail('mode "max" takes no scale_grad_by_freq') end
  if mode == "max" and sparse then fail('mode "max" takes no sparse') end
  if input:dim() == 2 then include_last_offset = false end
  input, offsets = bags(input, offsets)
  renormalize(weight, input, max_norm, norm_type)
  return (aten.embedding_bag(weight, input, offsets, scale_grad_by_freq, number, sparse,
                             per_sample_weights, include_last_offset, padding_idx))
end

-- Normalization. cudnn_enabled = true is PyTorch's default.

local function check_values(count, what)
  if count == 1 then fail("expected more than 1 ", what, " when training") end
end

-- Without a weight LibTorch 2.11 gives the bias no gradient on a GPU, or fails.
local function weight_of(weight, bias) return weight or bias and aten.ones_like(bias) end

function F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
  if training then check_values(input:numel() / input:size(1), "value per channel") end
  if eps <= 0 then fail("eps must be positive, got ", eps) end
  return aten.batch_norm(input, weight_of(weight, bias), bias, running_mean, running_var, training,
                         momentum, eps, true)
end

function F.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)
  if use_input_stats then check_values(product(input.shape, 3), "spatial element") end
  return aten.instance_norm(input, weight_of(weight, bias), bias, running_mean, running_var,
                            use_input_stats, momentum, eps, true)
end

F.layer_norm = aten.layer_norm

function F.group_norm(input, num_groups, weight, bias, eps)
  if input:dim() < 2 then fail("expected an input of at least 2 dims, got ", input:dim()) end
  check_values(input:numel() / num_groups, "value per group")
  return aten.group_norm(input, num_groups, weight, bias, eps)
end

function F.local_response_norm(input, size, alpha, beta, k)
  local dims, before, behind = input:dim(), floor(size / 2), floor((size - 1) / 2)
  if dims < 3 then fail("expected an input of at least 3 dims, got ", dims) end
  if input:numel() == 0 then return input end
  local squares = input * input
  if dims == 3 then
    squares = squares:unsqueeze(1):pad({0, 0, before, behind})
    squares = aten.avg_pool2d(squares, {size, 1}, 1):squeeze(1)
  else
    squares = squares:view{input:size(0), 1, input:size(1), input:size(2), -1}
    squares = squares:pad({0, 0, 0, 0, before, behind})
    squares = aten.avg_pool3d(squares, {size, 1, 1}, 1):squeeze(1):view(input.shape)
  end
  return input / (squares * alpha + k) ^ beta
end

-- The result in `out` if it is given, as PyTorch's out= does.
local function into(out, result) return out and out:resize_(result.shape):copy_(result) or result end

function F.norm(input, p, dim, keepdim, out, dtype)
  if dtype then input = input:to(dtype) end
  if type(p) == "string" and not (p == "fro" and #(dim or {}) <= 2) then
    dim = dim or (input:dim() == 2 and {0, 1} or fail("needs the two dims of the matrices as dim"))
    return into(out, aten.linalg_matrix_norm(input, p, dim, keepdim))
  end
  if p == "fro" then p = 2 end
  return into(out, aten.linalg_vector_norm(input, p or 2, dim, keepdim))
end

function F.normalize(input, p, dim, eps, out)
  return into(out, input / F.norm(input, p, dim, true):clamp_min(eps):expand_as(input))
end

-- Losses.

-- The function for a loss operator. It has `before` arguments of its own, those before size_average; the reduction
-- follows.
local function loss(operator, before)
  return function(...)
    local arguments = {...}
    local size_average, reduce, reduction = arguments[before + 1], arguments[before + 2], arguments[before + 3]
    arguments[before + 1] = reduction_word(size_average, reduce, reduction)
    return aten[operator](unpack(arguments, 1, before + 1))
  end
end
F.cosine_embedding_loss = loss("cosine_embedding_loss", 4)
F.hinge_embedding_loss = loss("hinge_embedding_loss", 3)
F.multi_margin_loss = loss("multi_margin_loss", 5)
F.multilabel_margin_loss = loss("multilabel_margin_loss", 2)
F.soft_margin_loss = loss("soft_margin_loss", 2)

function F.cross_entropy(input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing)
  reduction = reduction_word(size_average, reduce, reduction)
  return aten.cross_entropy_loss(input, target, weight, reduction, ignore_index, label_smoothing)
end

function F.nll_loss(input, target, weight, size_average, ignore_index, reduce, reduction)
  return aten.nll_loss_nd(input, target, weight, reduction_word(size_average, reduce, reduction), ignore_index)
end

local function check_target(input, target)
  if not target:is_same_size(input) then fail("target and input must have the same size") end
end

function F.binary_cross_entropy(input, target, weight, size_average, reduce, reduction)
  check_target(input, target)
  if weight then weight = aten.broadcast_tensors{target, weight}[2] end
  return aten.binary_cross_entropy(input, target, weight, reduction_word(size_average, reduce, reduction))
end

function F.binary_cross_entropy_with_logits(input, target, weight, size_average, reduce, reduction, pos_weight)
  check_target(input, target)
  reduction = reduction_word(size_average, reduce, reduction)
  return aten.binary_cross_entropy_with_logits(input, target, weight, pos_weight, reduction)
end

local function broadcast(input, target)
  refuse_all_pairs("input", input, "target", target)
  return unpack(aten.broadcast_tensors{input, target})
end

function F.mse_loss(input, target, size_average, reduce, reduction, weight)
  reduction = reduction_word(size_average, reduce, reduction)
  local x, y = broadcast(input, target)
  if weight then return weighted((x - y) ^ 2, weight, input, reduction) end
  return aten.mse_loss(x, y, reduction)
end

function F.l1_loss(input, target, size_average, reduce, reduction, weight)
  reduction = reduction_word(size_average, reduce, reduction)
  local x, y = broadcast(input, target)
  if weight then return weighted((x - y):abs(), weight, input, reduction) end
  return aten.l1_loss(x, y, reduction)
end

function F.smooth_l1_loss(input, target, size_average, reduce, reduction, beta)
  reduction = reduction_word(size_average, reduce, reduction)
  local x, y = broadcast(input, target)
  if beta == 0 then return aten.l1_loss(x, y, reduction) end
  return aten.smooth_l1_loss(x, y, reduction, beta)
end

function F.huber_loss(input, target, reduction, delta, weight)
  reduction = reduction_word(nil, nil, reduction)
  local x, y = broadcast(input, target)
  if not weight then return aten.huber_loss(x, y, reduction, delta) end
  if not weight:is_same_size(input) then fail("weight and input must have the same size") end
  return reduced(aten.huber_loss(x, y, "none", delta) * weight, reduction)
end

function F.kl_div(input, target, size_average, reduce, reduction, log_target)
  local by_batch = reduction == "batchmean"
  local sum = reduction_word(size_average, reduce, by_batch and "sum" or reduction)
  local y = aten.kl_div(input, target, sum, {log_target = log_target})
  return by_batch and input:dim() > 0 and y / input:size(0) or y
end

function F.poisson_nll_loss(input, target, log_input, full, size_average, eps, reduce, reduction)
  reduction = reduction_word(size_average, reduce, reduction)
  return aten.poisson_nll_loss(input, target, log_input, full, eps, reduction)
end

-- True if var has one value for each element of input, or one for all elements along a single dim.
local function fits_variance(input, var)
  local others = 0
  for i, size in ipairs(input.shape) do
    if var.shape[i] ~= size then others = others + (var.shape[i] == 1 and 1 or 2) end
  end
  return input:dim() == var:dim() and others <= 1
end

function F.gaussian_nll_loss(input, target, var, full, eps, reduction)
  if type(var) == "number" then var = aten.full_like(input, var) end
  if var:lt(0):any():item() then fail("var has negative entries") end
  if var:dim() == input:dim() - 1 then var = var:unsqueeze(-1) end
  if not fits_variance(input, var) then fail("var must have the size of input, or 1 in one dim") end
  refuse_all_pairs("input", input, "target", target)
  reduction = reduction_word(nil, nil, reduction)
  var = var:clone()
  no_grad(function() var:clamp_(eps) end)
  local y = 0.5 * (var:log() + (input - target) ^ 2 / var)
  if full then y = y + 0.91893853320467274178 end -- log(2 pi) / 2
  return reduced(y, reduction)
end

function F.multilabel_soft_margin_loss(input, target, weight, size_average, reduce, reduction)
  refuse_all_pairs("input", input, "target", target)
  reduction = reduction_word(size_average, reduce, reduction)
  local y = -(target * input:log_sigmoid() + (1 - target) * (-input):log_sigmoid())
  if weight then y = y * weight end
  return reduced(y:sum(-1) / input:size(-1), reduction)
end

function F.margin_ranking_loss(input1, input2, target, margin, size_average, reduce, reduction)
  if input1:dim() ~= input2:dim() or input1:dim() ~= target:dim() then
    fail("input1, input2 and target must have as many dims as each other")
  end
  reduction = reduction_word(size_average, reduce, reduction)
  return aten.margin_ranking_loss(input1, input2, target, margin, reduction)
end

function F.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, size_average, reduce, reduction)
  check_margin(margin)
  reduction = reduction_word(size_average, reduce, reduction)
  return aten.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction)
end

function F.triplet_margin_with_distance_loss(anchor, positive, negative, distance, margin, swap, reduction)
  reduction = reduction_word(nil, nil, reduction)
  check_margin(margin)
  if anchor:dim() ~= positive:dim() or anchor:dim() ~= negative:dim() then
    fail("anchor, positive and negative must have as many dims as each other")
  end
  if not distance then refuse_all_pairs("anchor", anchor, "positive", positive, "negative", negative) end
  distance = distance or aten.pairwise_distance
  local to_negative = distance(anchor, negative)
  if swap then to_negative = to_negative:minimum(distance(positive, negative)) end
  return reduced((distance(anchor, positive) - to_negative + margin):clamp_min(0), reduction)
end

-- Checks that labels are below `classes`: LibTorch uses them as addresses unchecked. Labels after a row's length are
-- not used.
local function check_labels(targets, target_lengths, classes)
  local function check(labels)
    if labels:numel() == 0 then return end
    local least, most = labels:min():item(), labels:max():item()
    if least < 0 or most >= classes then
      fail("targets must be within the ", classes, " classes, got ", least < 0 and least or most)
    end
  end
  if targets:dim() ~= 2 then return check(targets) end
  local lengths = type(target_lengths) == "table" and target_lengths or target_lengths:view(-1):tolist()
  for row = 1, targets:size(0) do
    local length = lengths[row] or 0  -- a wrong one is LibTorch's to refuse
    if length > 0 and length <= targets:size(1) then check(targets:select(0, row - 1):narrow(0, 0, length)) end
  end
end

function F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)
  check_labels(targets, target_lengths, log_probs:size(-1))
  return aten.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank,
                       reduction_word(nil, nil, reduction), zero_infinity)
end

-- Pools.

for d = 1, 3 do
  local pool, indices = "max_pool" .. d .. "d", "max_pool" .. d .. "d_with_indices"
  F[indices] = function(input, kernel_size, stride, padding, dilation, ceil_mode)
    return aten[indices](input, kernel_size, stride, padding, dilation, ceil_mode)
  end
  F[pool] = function(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    return aten[return_indices and indices or pool](input, kernel_size, stride, padding, dilation, ceil_mode)
  end
end

-- The output size with each nil replaced by the input's own size.
local function full_size(input, output_size, dims)
  local size = {}
  for i = 1, dims do size[i] = output_size[i] or input:size(i - 1 - dims) end
  return size
end

for d = 1, 3 do
  local mean, max = "adaptive_avg_pool" .. d .. "d", "adaptive_max_pool" .. d .. "d"
  if d > 1 then
    F[mean] = function(input, size) return aten[mean](input, full_size(input, size, d)) end
  end
  F[max .. "_with_indices"] = function(input, size) return aten[max](input, full_size(input, size, d)) end
  F[max] = function(input, size, return_indices)
    local y, indices = aten[max](input, full_size(input, size, d))
    if return_indices then return y, indices end
    return y
  end
  F["lp_pool" .. d .. "d"] = function(input, p, kernel_size, stride, ceil_mode)
    local y = aten["avg_pool" .. d .. "d"](input:pow(p), kernel_size, stride, 0, ceil_mode)
    local window = d == 1 and kernel_size or product(kernel_size)
    return (y:sign() * y:abs():relu()):mul(window):pow(1 / p)
  end
end

for d = 2, 3 do
  local pool = "fractional_max_pool" .. d .. "d"
  local function both(input, kernel_size, output_size, output_ratio, _, samples)
    if not output_size and not output_ratio then fail("needs either output_size or output_ratio") end
    if not output_size then
      output_size = {}
      for i = 1, d do output_size[i] = floor(input:size(i - 1 - d) * output_ratio[i]) end
    end
    if not samples then
      local batch = input:dim() == d + 1 and 1 or input:size(0)
      local like = {dtype = input.dtype, device = input.device}
      samples = aten.rand({batch, input:size(-d - 1), d}, like)
    end
    return aten[pool](input, kernel_size, output_size, samples)
  end
  F[pool .. "_with_indices"] = both
  F[pool] = function(...)
    local y, indices = both(...)
    if select(5, ...) then return y, indices end
    return y
  end
end

-- The size of the input of pooling. Several sizes may give the same pooled size; `asked` chooses one.
local function unpooled_size(input, kernel_size, stride, padding, asked)
  local dims, size = #kernel_size, {}
  if asked and #asked ~= dims and #asked ~= dims + 2 then
    fail("output_size must have ", dims, " or ", dims + 2, " numbers, got ", #asked)
  end
  for d = 1, dims do
    size[d] = (input:size(d - 1 - dims) - 1) * stride[d] + kernel_size[d] - 2 * padding[d]
    local wanted = asked and asked[#asked - dims + d] or size[d]
    if wanted <= size[d] - stride[d] or wanted >= size[d] + stride[d] then
      fail("dim ", d - 1, " of output_size must be between ", size[d] - stride[d], " and ",
           size[d] + stride[d], ", got ", wanted)
    end
    size[d] = wanted
  end
  return size
end

function F.max_unpool1d(input, indices, kernel_size, stride, padding, output_size)
  local size = unpooled_size(input, kernel_size, stride or kernel_size, padding, output_size)
  return aten.max_unpool2d(input:unsqueeze(-1), indices:unsqueeze(-1), {size[1], 1}):squeeze(-1)
end

function F.max_unpool2d(input, indices, kernel_size, stride, padding, output_size)
  local size = unpooled_size(input, kernel_size, stride or kernel_size, padding, output_size)
  return aten.max_unpool2d(input, indices, size)
end

function F.max_unpool3d(input, indices, kernel_size, stride, padding, output_size)
  stride = stride or kernel_size
  local size = unpooled_size(input, kernel_size, stride, padding, output_size)
  return aten.max_unpool3d(input, indices, size, stride, padding)
end

-- Images.

function F.unfold(input, kernel_size, dilation, padding, stride)
  return aten.im2col(input, kernel_size, dilation, padding, stride)
end

function F.fold(input, output_size, kernel_size, dilation, padding, stride)
  return aten.col2im(input, output_size, kernel_size, dilation, padding, stride)
end

function F.grid_sample(input, grid, mode, padding_mode, align_corners)
  return aten.grid_sampler(input, grid, one_of("mode", mode, {"bilinear", "nearest", "bicubic"}),
                           one_of("padding_mode", padding_mode, {"zeros", "border", "reflection"}),
                           align_corners or false)
end

function F.affine_grid(theta, size, align_corners)
  if not theta:is_floating_point() then fail("theta must be of floats, got ", theta.dtype) end
  local dims = #size - 2
  if dims ~= 2 and dims ~= 3 then fail("size must have 4 or 5 numbers, got ", #size) end
  if theta:dim() ~= 3 or theta:size(1) ~= dims or theta:size(2) ~= dims + 1 then
    fail("theta must have the shape (N, ", dims, ", ", dims + 1, ") for that size, got ", theta.shape)
  end
  for _, length in ipairs(size) do
    if length <= 0 then fail("size must be positive, got ", size) end
  end
  return aten.affine_grid_generator(theta, size, align_corners or false)
end

-- The values for all spatial dims; a single value is repeated for each.
local function per_dim(given, dims, argument)
  if not given or #given == dims then return given end
  if #given ~= 1 then
    fail(argument, " must be one number or ", dims, ", one for each spatial dim; got ", #given)
  end
  local all = {}
  for i = 1, dims do all[i] = given[1] end
  return all
end

local function scaled_size(input, factors)
  local size = {}
  for i, factor in ipairs(factors) do size[i] = floor(input:size(i + 1) * factor) end
  return size
end

-- For each mode that takes align_corners: its number of spatial dims, and its operator.
local aligned = {
  linear = {1, "upsample_linear1d"}, bilinear = {2, "upsample_bilinear2d"},
  trilinear = {3, "upsample_trilinear3d"}, bicubic = {2, "upsample_bicubic2d"},
}
local nearest = {nearest = "upsample_nearest", ["nearest-exact"] = "_upsample_nearest_exact"}
local modes = {"nearest", "nearest-exact", "area", "linear", "bilinear", "trilinear", "bicubic"}

function F.interpolate(input, size, scale_factor, mode, align_corners, recompute, antialias)
  one_of("mode", mode, modes)
  local dims, align = input:dim() - 2, aligned[mode]
  if dims < 1 or dims > 3 then fail("input must have 3, 4 or 5 dims (N, C, ...), got ", dims + 2) end
  if (size == nil) == (scale_factor == nil) then
    fail("needs either size or scale_factor, and not both")
  end
  if align_corners ~= nil and not align then fail('align_corners has no meaning for mode "', mode, '"') end
  if align and align[1] ~= dims then fail('mode "', mode, '" does not take an input of ', dims + 2, " dims") end
  if antialias and (dims ~= 2 or not align) then fail('antialias needs mode "bilinear" or "bicubic"') end
  if recompute and size then fail("recompute_scale_factor has no meaning with a size") end
  size = per_dim(size, dims, "size")
  local factors = per_dim(scale_factor, dims, "scale_factor")
  if factors and (recompute or mode == "area") then size, factors = scaled_size(input, factors), nil end
  if mode == "area" then return aten["adaptive_avg_pool" .. dims .. "d"](input, size) end
  if not align then return aten[nearest[mode] .. dims .. "d"](input, size, factors) end
  local operator = antialias and "_" .. align[2] .. "_aa" or align[2]
  return aten[operator](input, size, align_corners or false, factors)
end

function F.upsample(input, size, scale_factor, mode, align_corners)
  return F.interpolate(input, size, scale_factor, mode, align_corners)
end

function F.upsample_nearest(input, size, scale_factor)
  return F.interpolate(input, size, scale_factor, "nearest")
end

function F.upsample_bilinear(input, size, scale_factor)
  return F.interpolate(input, size, scale_factor, "bilinear", true)
end

-- Products.

function F.grouped_mm(mat_a, mat_b, offs, bias, out_dtype)
  return aten._grouped_mm(mat_a, mat_b, offs, bias, out_dtype)
end

-- Attention.

local function float_mask(mask, like, name)
  if not mask or mask:is_floating_point() then return mask end
  if mask.dtype ~= "bool" then fail(name, " must be bool or of floats, got ", mask.dtype) end
  return aten.zeros_like(mask, {dtype = like.dtype}):masked_fill_(mask, -1 / 0)
end

local function check_shape(tensor, shape, name)
  local same = tensor:dim() == #shape
  for i, size in ipairs(shape) do same = same and tensor.shape[i] == size end
  if not same then fail(name, " must have the shape ", shape, ", got ", tensor.shape) end
end

-- Projects query, key and value, either with the thirds of one weight or with a weight for each (`separate`).
local function project(query, key, value, weight, bias, separate)
  local weights = separate or weight and weight:chunk(3) or fail("needs in_proj_weight")
  for i, name in ipairs{"q_proj_weight", "k_proj_weight", "v_proj_weight"} do
    if not weights[i] then fail("use_separate_proj_weight needs ", name) end
  end
  local biases = bias and bias:chunk(3) or {}
  return aten.linear(query, weights[1], biases[1]), aten.linear(key, weights[2], biases[2]),
         aten.linear(value, weights[3], biases[3])
end

-- Adds one row after all other keys and values: zeros, or bias_k and bias_v.
local function attend_further(dim, k, v, row_k, row_v, attn_mask, key_padding_mask)
  return aten.cat({k, row_k}, dim), aten.cat({v, row_v}, dim), attn_mask and attn_mask:pad{0, 1},
         key_padding_mask and key_padding_mask:pad{0, 1}
end

-- Makes heads a part of the batch: (length, batch, dim) becomes (batch * heads, length, head dim).
local function split_heads(x, heads, static, name)
  local batch, dim = x:size(1) * heads, x:size(2) / heads
  if not static then return x:contiguous():view(x:size(0), batch, dim):transpose(0, 1) end
  check_shape(static, {batch, static:size(1), dim}, name)
  return static
end

local function check_attention(query, key, value, embed_dim, heads, separate)
  local dims = query:dim()
  if dims ~= key:dim() or dims ~= value:dim() or (dims ~= 2 and dims ~= 3) then
    fail("query, key and value must all have 3 dims, or 2 without a batch")
  end
  if query:size(-1) ~= embed_dim then fail("query must have ", embed_dim, " features, got ", query:size(-1)) end
  if embed_dim % heads ~= 0 then fail("embed_dim ", embed_dim, " must be a multiple of num_heads ", heads) end
  local shape = key.shape
  if separate then shape[dims] = value:size(-1) end
  check_shape(value, shape, "value")
end

-- Returns both masks as floats, and whether the attention kernel's own causal mask can be used in place of attn_mask.
local function read_masks(query, keys, heads, key_padding_mask, attn_mask, need_weights, is_causal)
  if is_causal and not attn_mask then fail("is_causal needs attn_mask too") end
  key_padding_mask = float_mask(key_padding_mask, query, "key_padding_mask")
  if is_causal and not key_padding_mask and not need_weights then return nil, nil, true end
  attn_mask = float_mask(attn_mask, query, "attn_mask")
  if attn_mask and attn_mask:dim() == 2 then attn_mask = attn_mask:unsqueeze(0) end
  if attn_mask then
    local sets = attn_mask:size(0) == 1 and 1 or query:size(1) * heads
    check_shape(attn_mask, {sets, query:size(0), keys}, "attn_mask")
  end
  return key_padding_mask, attn_mask, is_causal and not key_padding_mask
end

local function join_masks(attn_mask, key_padding_mask, batch, heads, keys)
  if not key_padding_mask then return attn_mask end
  check_shape(key_padding_mask, {batch, keys}, "key_padding_mask")
  local padding = key_padding_mask:view(batch, 1, 1, keys):expand(-1, heads, -1, -1)
  padding = padding:reshape(batch * heads, 1, keys)
  return attn_mask and attn_mask + padding or padding
end

-- Both functions return (length, batch, heads, head dim), stored in rows of all heads; the first also returns the
-- weights.
local function attend_with_weights(q, k, v, mask, batch, dropout_p)
  q = q * (1 / q:size(2)) ^ 0.5
  local scores = mask and aten.baddbmm(mask, q, k:transpose(-2, -1)) or q:bmm(k:transpose(-2, -1))
  local weights = scores:softmax(-1)
  if dropout_p > 0 then weights = aten.dropout(weights, dropout_p, true) end
  return weights:bmm(v):transpose(0, 1), weights:view(batch, -1, q:size(1), k:size(1))
end

local function attend(q, k, v, mask, batch, dropout_p, is_causal)
  local function by_batch(x) return x:view(batch, -1, x:size(1), x:size(2)) end
  if mask then mask = mask:size(0) == 1 and mask:unsqueeze(0) or mask:view(batch, -1, q:size(1), k:size(1)) end
  local y = aten.scaled_dot_product_attention(by_batch(q), by_batch(k), by_batch(v), mask, dropout_p, is_causal)
  return y:permute(2, 0, 1, 3)
end

function F.multi_head_attention_forward(
    query, key, value, embed_dim, heads, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn,
    dropout_p, out_proj_weight, out_proj_bias, training, key_padding_mask, need_weights, attn_mask,
    use_separate, q_proj_weight, k_proj_weight, v_proj_weight, static_k, static_v, average_attn_weights,
    is_causal)
  check_attention(query, key, value, embed_dim, heads, use_separate)
  local batched = query:dim() == 3
  if not batched then
    query, key, value = query:unsqueeze(1), key:unsqueeze(1), value:unsqueeze(1)
    key_padding_mask = key_padding_mask and key_padding_mask:unsqueeze(0)
  end
  local length, batch = query:size(0), query:size(1)
  key_padding_mask, attn_mask, is_causal = read_masks(query, key:size(0), heads, key_padding_mask, attn_mask,
                                                      need_weights, is_causal)
  local q, k, v = project(query, key, value, in_proj_weight, in_proj_bias,
                          use_separate and {q_proj_weight, k_proj_weight, v_proj_weight})
  if (bias_k == nil) ~= (bias_v == nil) then fail("needs both of bias_k and bias_v, or none") end
  if bias_k then
    if static_k or static_v then fail("bias_k and bias_v cannot be added to static_k and static_v") end
    k, v, attn_mask, key_padding_mask = attend_further(
      0, k, v, bias_k:expand(-1, batch, -1), bias_v:expand(-1, batch, -1), attn_mask, key_padding_mask)
  end
  q = split_heads(q, heads)
  k, v = split_heads(k, heads, static_k, "static_k"), split_heads(v, heads, static_v, "static_v")
  if add_zero_attn then
    local zeros = k:new_zeros{batch * heads, 1, k:size(2)}
    k, v, attn_mask, key_padding_mask = attend_further(1, k, v, zeros, zeros, attn_mask, key_padding_mask)
  end
  attn_mask = join_masks(attn_mask, key_padding_mask, batch, heads, k:size(1))
  local run = need_weights and attend_with_weights or attend
  local y, weights = run(q, k, v, attn_mask, batch, training and dropout_p or 0, is_causal)
  y = aten.linear(y:contiguous():view(length * batch, embed_dim), out_proj_weight, out_proj_bias)
  y = y:view(length, batch, y:size(1))
  if not batched then y = y:squeeze(1) end
  if not need_weights then return y end
  if average_attn_weights then weights = weights:mean(1) end
  if not batched then weights = weights:squeeze(0) end
  return y, weights
end

-- Functions of torch, which are methods of tensors too.

-- Computes with other * alpha. As in PyTorch's older form, alpha may precede other.
local function with_alpha(operator)
  return function(input, other, alpha)
    if type(other) == "number" and alpha and type(alpha) ~= "number" then other, alpha = alpha, other end
    return aten[operator](input, other, {alpha = alpha or 1})
  end
end
F.add = with_alpha("add")
F.sub = with_alpha("sub")

F.stft = aten.stft -- all arguments choose the overload that centres

local function with_details(output, inverse, counts, return_inverse, return_counts)
  if return_inverse and return_counts then return output, inverse, counts end
  if return_inverse then return output, inverse end
  if return_counts then return output, counts end
  return output
end

function F.unique(input, sorted, return_inverse, return_counts, dim)
  local output, inverse, counts
  if dim then
    output, inverse, counts = aten.unique_dim(input, dim, sorted, return_inverse, return_counts)
  else
    output, inverse, counts = aten._unique2(input, sorted, return_inverse, return_counts)
  end
  return with_details(output, inverse, counts, return_inverse, return_counts)
end

function F.unique_consecutive(input, return_inverse, return_counts, dim)
  local output, inverse, counts = aten.unique_consecutive(input, return_inverse, return_counts, dim)
  return with_details(output, inverse, counts, return_inverse, return_counts)
end

-- torch.nn.init: each function changes its tensor and returns it.
local function initial(name, body)
  F["nn.init." .. name] = function(tensor, ...)
    local arguments, count = {...}, select("#", ...)
    no_grad(function() body(tensor, unpack(arguments, 1, count)) end)
    return tensor
  end
end

local function fans(tensor)
  if tensor:dim() < 2 then fail("needs a tensor of at least 2 dims, got one of ", tensor:dim()) end
  local kernel = product(tensor.shape, 3)
  return tensor.shape[2] * kernel, tensor.shape[1] * kernel
end

local function gain_of(nonlinearity, param)
  local gains = { linear = 1, conv1d = 1, conv2d = 1, conv3d = 1, conv_transpose1d = 1, conv_transpose2d = 1,
                  conv_transpose3d = 1, sigmoid = 1, tanh = 5 / 3, relu = 2 ^ 0.5, selu = 3 / 4,
                  leaky_relu = (2 / (1 + (param or 0.01) ^ 2)) ^ 0.5 }
  if gains[nonlinearity] then return gains[nonlinearity] end
  one_of("nonlinearity", nonlinearity, {"linear", "conv1d", "conv2d", "conv3d", "sigmoid", "tanh", "relu", "leaky_relu", "selu"})
end
F["nn.init.calculate_gain"] = gain_of

local function uniform(tensor, bound) tensor:uniform_(-bound, bound) end

local function kaiming_std(tensor, a, mode, nonlinearity)
  local fan_in, fan_out = fans(tensor)
  one_of("mode", mode, {"fan_in", "fan_out"})
  return gain_of(nonlinearity, a) / (mode == "fan_in" and fan_in or fan_out) ^ 0.5
end

local function xavier_std(tensor, gain)
  local fan_in, fan_out = fans(tensor)
  return gain * (2 / (fan_in + fan_out)) ^ 0.5
end

initial("constant_", function(tensor, value) tensor:fill_(value) end)
initial("zeros_", function(tensor) tensor:zero_() end)
initial("ones_", function(tensor) tensor:fill_(1) end)
initial("uniform_", function(tensor, a, b) tensor:uniform_(a, b) end)
initial("normal_", function(tensor, mean, std) tensor:normal_(mean, std) end)
initial("xavier_uniform_", function(tensor, gain) uniform(tensor, 3 ^ 0.5 * xavier_std(tensor, gain)) end)
initial("xavier_normal_", function(tensor, gain) tensor:normal_(0, xavier_std(tensor, gain)) end)
initial("kaiming_uniform_", function(tensor, ...) uniform(tensor, 3 ^ 0.5 * kaiming_std(tensor, ...)) end)
initial("kaiming_normal_", function(tensor, ...) tensor:normal_(0, kaiming_std(tensor, ...)) end)

initial("trunc_normal_", function(tensor, mean, std, a, b)
  local function below(x) -- the share of a normal distribution
    return (1 + aten.full({1}, (x - mean) / std / 2 ^ 0.5, {dtype = "float64"}):erf():item()) / 2
  end
  tensor:uniform_(2 * below(a) - 1, 2 * below(b) - 1):erfinv_():mul_(std * 2 ^ 0.5):add_(mean)
  tensor:clamp_(a, b)
end)

initial("eye_", function(tensor)
  if tensor:dim() ~= 2 then fail("needs a tensor of 2 dims, got one of ", tensor:dim()) end
  tensor:zero_():diagonal():fill_(1)
end)

-- In each group, the middle of the kernel passes the group's channels on unchanged.
initial("dirac_", function(tensor, groups)
  if tensor:dim() < 3 or tensor:dim() > 5 then fail("needs a tensor of 3 to 5 dims, got one of ", tensor:dim()) end
  local channels = tensor.shape[1] / groups
  if channels % 1 ~= 0 then fail("groups = ", groups, " does not divide dim 0, of ", tensor.shape[1]) end
  local middle = tensor:zero_()
  for dim = tensor:dim(), 3, -1 do middle = middle:select(-1, (tensor.shape[dim] - tensor.shape[dim] % 2) / 2) end
  for group = 0, groups - 1 do middle:narrow(0, group * channels, channels):diagonal():fill_(1) end
end)

initial("sparse_", function(tensor, sparsity, std)
  if tensor:dim() ~= 2 then fail("needs a tensor of 2 dims, got one of ", tensor:dim()) end
  local rows = tensor.shape[1]
  local zero = sparsity * rows
  tensor:normal_(0, std)
  for column = 0, tensor.shape[2] - 1 do
    local zeros = aten.randperm(rows):narrow(0, 0, zero + -zero % 1)
    tensor:select(1, column):index_fill_(0, zeros, 0)
  end
end)

initial("orthogonal_", function(tensor, gain)
  if tensor:dim() < 2 then fail("needs a tensor of at least 2 dims, got one of ", tensor:dim()) end
  if tensor:numel() == 0 then return end
  local rows = tensor.shape[1]
  local columns = tensor:numel() / rows
  local flat = tensor:new_empty({rows, columns}):normal_(0, 1)
  if rows < columns then flat = flat:t() end
  local q, r = aten.linalg_qr(flat)
  q = q * r:diagonal():sign()
  if rows < columns then q = q:t() end
  tensor:view_as(q):copy_(q)
  tensor:mul_(gain)
end)

return F
