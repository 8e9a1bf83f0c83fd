// Prints tensors as PyTorch does. A first pass over the shown elements finds their range, which
// decides between plain and scientific notation; a second pass finds the widest element; then rows
// are written with all elements in that width. Only shown elements are read, so the cost is small
// even for large tensors.
#include "lua/tensors/print.h"

#include <ATen/core/ivalue.h>
#include <c10/core/Scalar.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "engine/base/tensors/dtype.h"
#include "engine/base/text.h"

namespace strata::lua {
namespace {

constexpr int64_t kThreshold = 1000;  // with more elements, the middle is left out
constexpr int64_t kEdge = 3;          // elements shown then at either end of a dim

/// The format of all elements of one tensor; a common width aligns the columns.
struct Format {
  bool integral = false;
  bool boolean = false;
  bool scientific = false;
  bool fraction = false;  // true if some finite value is not whole
  size_t width = 1;
};

std::string Element(double value, const Format& format) {
  if (format.boolean) return value != 0 ? "true" : "false";
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[400];
  const char* pattern = format.integral     ? "%.0f"
                        : format.scientific ? "%.4e"
                        : format.fraction   ? "%.4f"
                                            : "%.0f.";
  std::snprintf(buffer, sizeof(buffer), pattern, value);
  return buffer;
}

std::vector<int64_t> ShownPlaces(int64_t size, bool summarize) {
  std::vector<int64_t> places;
  for (int64_t i = 0; i < size; ++i) {
    if (!summarize || size <= 2 * kEdge || i < kEdge || i >= size - kEdge) places.push_back(i);
  }
  return places;
}

class Printer {
 public:
  explicit Printer(const at::Tensor& tensor)
      : tensor_(tensor), summarize_(tensor.numel() > kThreshold) {
    format_.boolean = tensor.scalar_type() == at::kBool;
    format_.integral = at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
    MeasureRange(tensor_);
    MeasureWidth(tensor_);
  }
  std::string Text() const { return Lines(tensor_, 7); }  // 7 = the length of "tensor("

 private:
  template <class Visit>
  void ForShown(const at::Tensor& part, const Visit& visit) {
    if (part.dim() == 0) {
      visit(part.item().toDouble());
      return;
    }
    for (const int64_t i : ShownPlaces(part.size(0), summarize_))
      ForShown(part.select(0, i), visit);
  }

  void MeasureRange(const at::Tensor& part) {
    double largest = 0, smallest = INFINITY;
    ForShown(part, [&](double value) {
      if (!std::isfinite(value)) return;
      format_.fraction = format_.fraction || std::floor(value) != value;
      if (value == 0) return;
      largest = std::max(largest, std::abs(value));
      smallest = std::min(smallest, std::abs(value));
    });
    if (format_.integral || largest == 0) return;
    format_.scientific =
        largest >= 1e8 || (format_.fraction && (smallest < 1e-4 || largest / smallest > 1000));
  }
  void MeasureWidth(const at::Tensor& part) {
    ForShown(part, [&](double value) {
      format_.width = std::max(format_.width, Element(value, format_).size());
    });
  }

  std::string Row(const at::Tensor& row, size_t indent) const {
    constexpr size_t kLine = 80;
    std::string text = "[";
    size_t column = indent + 1;
    int64_t before = -1;
    for (const int64_t i : ShownPlaces(row.size(0), summarize_)) {
      if (before >= 0) {
        text += i == before + 1 ? ", " : ", ..., ";
        column += i == before + 1 ? 2 : 7;
      }
      if (before >= 0 && column + format_.width > kLine) {
        text.pop_back();
        text += "\n" + std::string(indent + 1, ' ');
        column = indent + 1;
      }
      const std::string element = Element(row.select(0, i).item().toDouble(), format_);
      text += std::string(format_.width - element.size(), ' ') + element;
      column += format_.width;
      before = i;
    }
    return text + "]";
  }

  std::string Lines(const at::Tensor& part, size_t indent) const {
    if (part.dim() == 0) return Element(part.item().toDouble(), format_);
    if (part.dim() == 1) return Row(part, indent);
    const std::string gap(static_cast<size_t>(part.dim()) - 1, '\n');
    const std::string margin(indent + 1, ' ');
    std::string text = "[";
    int64_t before = -1;
    for (const int64_t i : ShownPlaces(part.size(0), summarize_)) {
      if (before >= 0) text += "," + gap + margin;
      if (before >= 0 && i != before + 1) text += "...," + gap + margin;
      text += Lines(part.select(0, i), indent + 1);
      before = i;
    }
    return text + "]";
  }

  at::Tensor tensor_;
  bool summarize_;
  Format format_;
};

/// The text after the elements: dtype, device, gradient, and the shape if elements are left out or
/// there are none.
std::string Suffix(const at::Tensor& tensor) {
  std::string suffix;
  const at::ScalarType type = tensor.scalar_type();
  if (tensor.numel() == 0 || tensor.numel() > kThreshold) {
    suffix += Str(", size=", FormatShape(tensor.sizes()));
  }
  if (tensor.is_cuda()) suffix += Str(", device=\"", tensor.device().str(), "\"");
  if (type != at::kFloat && type != at::kBool && type != at::kLong) {
    suffix += Str(", dtype=", DTypeName(FromScalarType(type)));
  }
  if (tensor.requires_grad()) suffix += ", requires_grad=true";
  return suffix + ")";
}

}  // namespace

std::string PrintTensor(const at::Tensor& tensor) {
  if (at::isComplexType(tensor.scalar_type()) || tensor.layout() != at::kStrided) {
    return Str("tensor(", c10::toString(tensor.scalar_type()), " ", FormatShape(tensor.sizes()),
               ")");
  }
  return Str("tensor(", Printer(tensor.detach().cpu()).Text(), Suffix(tensor));
}

}  // namespace strata::lua
