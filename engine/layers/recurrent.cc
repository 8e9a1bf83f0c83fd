// The recurrent layers: RNN, LSTM and GRU.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gru.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/rnn_relu.h>
#include <ATen/ops/rnn_tanh.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <array>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/layers/dropout.h"
#include "engine/layers/families.h"
#include "engine/layers/init.h"
#include "engine/layers/layer_types.h"

namespace strata {
namespace {

/// Inputs are the sequence and optionally the states before it (hidden; for an LSTM hidden and
/// cell). Outputs are the sequence and the states after it. States are (layers * directions, N,
/// size).
class Recurrent : public Layer {
 public:
  Recurrent(const LayerSpec& spec, const BuildContext&)
      : type_(spec.type),
        is_relu_(type_ == "RNN" && spec.args["nonlinearity"].as_string() == "relu"),
        bias_(spec.Bool("bias")),
        batch_first_(spec.Bool("batch_first")),
        bidirectional_(spec.Bool("bidirectional")),
        dropout_(spec.Number("dropout")),
        layers_(spec.Int("num_layers")),
        hidden_(spec.Int("hidden_size")) {
    const double bound = 1 / std::sqrt(static_cast<double>(hidden_));
    for (const ParameterSpec& parameter : ParametersOf(spec)) {
      AddParameter(parameter.name, UniformValues(parameter.shape, bound));
    }
    output_ = parameters_[1].value.size(1);
  }

  Tensors Forward(const Tensors& inputs, const Pass& pass) override {
    // Without a graph ATen's LSTM may round differently. Then a forward that is recomputed with a
    // graph would have other bits than the first forward. So in training autograd always records
    // here, and the outputs are detached.
    const bool records = at::GradMode::is_enabled();
    const at::AutoGradMode recording(records || pass.training);
    CheckShapes(inputs);
    const Tensors states = States(inputs);
    // ATen would draw from the device's default generator, so ApplyDropout() is used. As in ATen it
    // is applied to (T, N, size).
    const bool drops = pass.training && dropout_ > 0 && layers_ > 1;
    // For non-contiguous inputs ATen chooses other matrix products with a gradient than without,
    // with other bits.
    const at::Tensor x = (batch_first_ ? inputs[0].transpose(0, 1) : inputs[0]).contiguous();
    Tensors outputs = drops ? LayerByLayer(x, states) : Run(x, states, 0, layers_, pass.training);
    if (batch_first_) outputs[0] = outputs[0].transpose(0, 1);
    if (!records) {
      for (at::Tensor& output : outputs) output = output.detach();
    }
    return outputs;
  }

 private:
  int64_t directions() const { return bidirectional_ ? 2 : 1; }

  /// Checks the shapes of the inputs. ATen's LSTM does not, and would read beyond the tensors.
  void CheckShapes(const Tensors& inputs) const {
    const at::Tensor& x = inputs[0];
    const int64_t features = parameters_[0].value.size(1);
    TORCH_CHECK(x.dim() == 3 && x.size(2) == features, "expects three dims, the last of ", features,
                ", got ", x.sizes());
    const std::array<int64_t, 2> sizes = {output_, hidden_};
    for (size_t i = 1; i < inputs.size(); ++i) {
      TORCH_CHECK(inputs[i].defined(), "expects all first states or none");
      const std::array<int64_t, 3> expected = {layers_ * directions(), x.size(batch_first_ ? 0 : 1),
                                               sizes.at(i - 1)};
      TORCH_CHECK(inputs[i].sizes() == at::IntArrayRef(expected), "expects first states of ",
                  at::IntArrayRef(expected), ", got ", inputs[i].sizes());
    }
  }

  Tensors States(const Tensors& inputs) const {
    if (inputs.size() > 1) return {inputs.begin() + 1, inputs.end()};
    const at::Tensor& x = inputs[0];
    const int64_t cells = layers_ * directions(), batch = x.size(batch_first_ ? 0 : 1);
    Tensors states = {at::zeros({cells, batch, output_}, x.options())};
    if (type_ == "LSTM") states.push_back(at::zeros({cells, batch, hidden_}, x.options()));
    return states;
  }

  /// Runs `count` layers, beginning with layer `first`. `states` are the states of these layers; x
  /// is (T, N, size). Half precision is computed in float32 on the CPU: for half types ATen asks
  /// whether CUDA could compute it, which initialises CUDA, and after that no rank process can be
  /// forked.
  Tensors Run(const at::Tensor& x, const Tensors& states, int64_t first, int64_t count,
              bool training) const {
    const auto per_layer = static_cast<int64_t>(parameters_.size()) / layers_;
    std::vector<at::Tensor> weights;
    for (int64_t i = first * per_layer; i < (first + count) * per_layer; ++i) {
      weights.push_back(parameters_[i].value);
    }
    const at::ScalarType type = x.scalar_type();
    if (!x.is_cpu() || !at::isReducedFloatingType(type)) {
      return Cells(x, states, weights, count, training);
    }
    const auto all_to = [](Tensors tensors, at::ScalarType to) {
      for (at::Tensor& tensor : tensors) tensor = tensor.to(to);
      return tensors;
    };
    return all_to(Cells(x.to(at::kFloat), all_to(states, at::kFloat), all_to(weights, at::kFloat),
                        count, training),
                  type);
  }

  Tensors Cells(const at::Tensor& x, const Tensors& states, const std::vector<at::Tensor>& weights,
                int64_t count, bool training) const {
    if (type_ == "LSTM") {
      auto [y, hidden, cell] = at::lstm(x, states, weights, bias_, count, /*dropout=*/0, training,
                                        bidirectional_, /*batch_first=*/false);
      return {y, hidden, cell};
    }
    using Function =
        std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&, at::TensorList,
                                           bool, int64_t, double, bool, bool, bool);
    Function* const run = type_ == "GRU" ? static_cast<Function*>(at::gru)
                          : is_relu_     ? static_cast<Function*>(at::rnn_relu)
                                         : static_cast<Function*>(at::rnn_tanh);
    auto [y, hidden] = run(x, states[0], weights, bias_, count, /*dropout=*/0, training,
                           bidirectional_, /*batch_first=*/false);
    return {y, hidden};
  }

  Tensors LayerByLayer(at::Tensor x, const Tensors& states) const {
    std::vector<Tensors> last(states.size());
    for (int64_t layer = 0; layer < layers_; ++layer) {
      Tensors own;
      for (const at::Tensor& state : states) {
        own.push_back(state.narrow(0, layer * directions(), directions()));
      }
      const Tensors y = Run(x, own, layer, 1, /*training=*/true);
      for (size_t i = 0; i < last.size(); ++i) last[i].push_back(y[i + 1]);
      x = layer + 1 < layers_ ? ApplyDropout(y[0], dropout_, /*training=*/true) : y[0];
    }
    Tensors outputs = {x};
    for (const Tensors& of_layers : last) outputs.push_back(at::cat(of_layers, 0));
    return outputs;
  }

  const std::string type_;
  const bool is_relu_, bias_, batch_first_, bidirectional_;
  const double dropout_;
  const int64_t layers_;
  const int64_t hidden_;
  int64_t output_;  // features of a cell's output: hidden_, or an LSTM's proj_size
};

constexpr LayerEntry kLayers[] = {
    {"RNN", New<Recurrent>}, {"LSTM", New<Recurrent>}, {"GRU", New<Recurrent>}};

}  // namespace

LayerTable RecurrentLayers() { return kLayers; }

}  // namespace strata
