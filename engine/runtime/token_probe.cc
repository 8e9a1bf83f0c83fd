// For each layer that is not known: run it on all but two tokens, then on one token, then on the
// last one, with kept keys and values, and compare each result with the same part of the output for
// the whole text. This costs about one more forward of the layer.
#include "engine/runtime/token_probe.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/layers/kept_tokens.h"
#include "engine/layers/layer_types.h"

namespace strata {

void TokenProbe::See(const StageLayer& layer, const Tensors& input, const Tensors& output,
                     const Pass& pass) {
  const bool is_known = input.size() == 1 && IsTokenWise(layers_[static_cast<size_t>(layer.index)]);
  if (is_known) return;
  // All further layers run as well, because the ranks of the model axis meet in them.
  const std::string why = Difference(layer, input, output, pass);
  if (why.empty() || layer_ >= 0) return;
  layer_ = layer.index;
  why_ = Str(layer.label, " ", why);
}

std::string TokenProbe::Difference(const StageLayer& layer, const Tensors& input,
                                   const Tensors& output, const Pass& pass) {
  KeptTokens kept(tokens_);
  const TokenScope scope(&kept);
  std::string why;
  try {
    for (int64_t begin = 0, count = tokens_ - 2; begin < tokens_; begin += count, count = 1) {
      const Tensors got = layer.layer->Forward(Part(input, begin, count), pass);
      if (!AreClose(got, Part(output, begin, count))) {
        why =
            "gives other values for a token alone than within its text (strata.position() is the "
            "place of the first)";
      }
      kept.Advance(count);
    }
  } catch (const ConfigError& error) {
    why = Str("cannot take a token alone: ", Split(error.what(), '\n').front());
  } catch (const c10::Error& error) {
    why = Str("cannot take a token alone: ", Split(error.what_without_backtrace(), '\n').front());
  }
  return why;
}

/// Cuts tensors that have the tokens in dim 1; other tensors are the same for all tokens.
Tensors TokenProbe::Part(const Tensors& whole, int64_t begin, int64_t count) const {
  Tensors part;
  for (const at::Tensor& tensor : whole) {
    const bool has_tokens = tensor.defined() && tensor.dim() > 1 && tensor.size(1) == tokens_;
    const at::Tensor own = has_tokens ? tensor.narrow(1, begin, count) : tensor;
    part.push_back(own.defined() ? own.clone() : own);  // a copy: layers may work in place
  }
  return part;
}

bool TokenProbe::AreClose(const Tensors& got, const Tensors& expected) const {
  if (got.size() != expected.size()) return false;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i].sizes() != expected[i].sizes()) return false;
    const at::Tensor whole = expected[i].to(at::kDouble);
    const double norm = whole.norm().item<double>();
    const double difference = got[i].to(at::kDouble).sub(whole).norm().item<double>();
    // Written so that the result is false for NaN.
    if (!(difference <= tolerance_ * norm)) return false;
  }
  return true;
}

}  // namespace strata
