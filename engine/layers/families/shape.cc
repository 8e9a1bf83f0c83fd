// The layers that only change shapes: Flatten, Unflatten and Identity.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/families.h"
#include "engine/layers/unary.h"

namespace strata {
namespace {

class Identity : public UnaryLayer {
 public:
  OutputMemory output_memory() const override { return OutputMemory::kInput; }

 protected:
  at::Tensor Apply(const at::Tensor& x, const Pass&) override { return x; }
};

class Flatten : public UnaryLayer {
 public:
  Flatten(int64_t start_dim, int64_t end_dim) : start_dim_(start_dim), end_dim_(end_dim) {}
  OutputMemory output_memory() const override { return OutputMemory::kInput; }

 protected:
  at::Tensor Apply(const at::Tensor& x, const Pass&) override {
    return x.flatten(start_dim_, end_dim_);
  }

 private:
  const int64_t start_dim_;
  const int64_t end_dim_;
};

class Unflatten : public UnaryLayer {
 public:
  Unflatten(int64_t dim, std::vector<int64_t> sizes) : dim_(dim), sizes_(std::move(sizes)) {}
  OutputMemory output_memory() const override { return OutputMemory::kInput; }

 protected:
  at::Tensor Apply(const at::Tensor& x, const Pass&) override { return x.unflatten(dim_, sizes_); }

 private:
  const int64_t dim_;
  const std::vector<int64_t> sizes_;
};

}  // namespace

std::unique_ptr<Layer> MakeShape(const LayerSpec& spec, const BuildContext&) {
  const Value& args = spec.args;
  if (spec.type == "Identity") return std::make_unique<Identity>();
  if (spec.type == "Flatten") {
    return std::make_unique<Flatten>(args["start_dim"].as_int(), args["end_dim"].as_int());
  }
  STRATA_CHECK(spec.type == "Unflatten") << "no shape layer " << spec.type;
  return std::make_unique<Unflatten>(args["dim"].as_int(), args["unflattened_size"].as_ints());
}

}  // namespace strata
