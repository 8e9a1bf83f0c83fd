// The data source "token_file": a file of nothing but tokens, mapped into memory.
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/data/files/mapped_file.h"
#include "engine/data/sources.h"

namespace strata::data {
namespace {

template <class T>
class TokenFile : public Dataset {
 public:
  TokenFile(const std::string& path, int64_t length, int64_t vocabulary)
      : file_(path, "tokens"), length_(length), vocabulary_(vocabulary) {
    const auto bytes = static_cast<int64_t>(file_.bytes().size());
    constexpr auto kWidth = static_cast<int64_t>(sizeof(T));
    tokens_ = bytes / kWidth;
    ExpectRandomReads(file_.bytes());
    if (bytes % kWidth != 0 || tokens_ < length + 1) {
      throw WorldError(Str(path, ": expected at least ", length + 1, " tokens of ", kWidth,
                           " bytes each, got ", bytes, " bytes"));
    }
  }
  int64_t size() const override { return (tokens_ - 1) / length_; }
  TensorSpec input() const override { return {{length_}, DType::kInt64}; }
  TensorSpec target() const override { return {{length_}, DType::kInt64}; }
  int64_t classes() const override { return vocabulary_; }
  std::string description() const override {
    return Str("token_file: ", FormatCount(tokens_), " tokens, ", FormatCount(size()),
               " pieces of ", length_);
  }
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    const int64_t begin = sample.index * length_;
    if (input) Copy(begin, input);
    if (target) Copy(begin + 1, target);
  }

 private:
  void Copy(int64_t begin, std::byte* to) const {
    const std::byte* from = file_.bytes().data() + static_cast<size_t>(begin) * sizeof(T);
    for (int64_t i = 0; i < length_; ++i) {
      T token;
      std::memcpy(&token, from, sizeof(T));
      const auto wide = static_cast<int64_t>(token);
      if (wide < 0 || (vocabulary_ > 0 && wide >= vocabulary_)) Refuse(begin + i, wide);
      std::memcpy(to, &wide, sizeof(wide));
      from += sizeof(T);
      to += sizeof(wide);
    }
  }
  [[noreturn]] void Refuse(int64_t index, int64_t token) const {
    throw WorldError(Str(file_.path(), ": token ", index, " is ", token, ", expected 0",
                         vocabulary_ > 0 ? Str(" to ", vocabulary_ - 1) : " or more"));
  }

  const MappedFile file_;
  const int64_t length_;
  const int64_t vocabulary_;
  int64_t tokens_ = 0;
};

}  // namespace

std::unique_ptr<Dataset> OpenTokenFile(const DataSpec& spec, const DatasetContext& context) {
  const std::string path = ResolvePath(spec.options["path"].as_string(), context);
  const std::string& dtype = spec.options["dtype"].as_string();
  const int64_t length = spec.options["length"].as_int();
  const Value& option = spec.options["vocabulary"];
  const int64_t vocabulary = option.is_null() ? 0 : option.as_int();
  if (dtype == "uint8") return std::make_unique<TokenFile<uint8_t>>(path, length, vocabulary);
  if (dtype == "int32") return std::make_unique<TokenFile<int32_t>>(path, length, vocabulary);
  if (dtype == "int64") return std::make_unique<TokenFile<int64_t>>(path, length, vocabulary);
  return std::make_unique<TokenFile<uint16_t>>(path, length, vocabulary);
}

}  // namespace strata::data
