// The data source "token_file": a file of nothing but tokens, mapped into memory.
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/data/files/mapped_file.h"
#include "engine/data/sources.h"
#include "engine/data/token_pieces.h"

namespace strata::data {
namespace {

class TokenFile : public Dataset {
 public:
  /// `width`: bytes of a token.
  TokenFile(const std::string& path, int width, int64_t length, int64_t vocabulary)
      : file_(path, "tokens"),
        tokens_({file_.bytes(), width, nullptr}),
        length_(length),
        vocabulary_(vocabulary) {
    ExpectRandomReads(file_.bytes());
    const size_t bytes = file_.bytes().size();
    if (bytes % static_cast<size_t>(width) != 0 || tokens_.size() < length + 1) {
      throw WorldError(Str(path, ": expected at least ", length + 1, " tokens of ", width,
                           " bytes each, got ", bytes, " bytes"));
    }
  }
  int64_t size() const override { return (tokens_.size() - 1) / length_; }
  TensorSpec input() const override { return {{length_}, DType::kInt64}; }
  TensorSpec target() const override { return {{length_}, DType::kInt64}; }
  int64_t classes() const override { return vocabulary_; }
  std::string description() const override {
    return Str("token_file: ", FormatCount(tokens_.size()), " tokens, ", FormatCount(size()),
               " pieces of ", length_);
  }
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    const int64_t begin = sample.index * length_;
    if (input) Copy(begin, input);
    if (target) Copy(begin + 1, target);
  }

 private:
  void Copy(int64_t begin, std::byte* to) const {
    tokens_.Copy(begin, length_, to);
    for (int64_t i = 0; i < length_; ++i, to += sizeof(int64_t)) {
      int64_t token;
      std::memcpy(&token, to, sizeof(token));
      if (token < 0 || (vocabulary_ > 0 && token >= vocabulary_)) Refuse(begin + i, token);
    }
  }
  [[noreturn]] void Refuse(int64_t index, int64_t token) const {
    throw WorldError(Str(file_.path(), ": token ", index, " is ", token, ", expected 0",
                         vocabulary_ > 0 ? Str(" to ", vocabulary_ - 1) : " or more"));
  }

  const MappedFile file_;
  const TokenSequence tokens_;  // in the file
  const int64_t length_;
  const int64_t vocabulary_;
};

}  // namespace

std::unique_ptr<Dataset> OpenTokenFile(const DataSpec& spec, const DatasetContext& context) {
  const std::string path = ResolvePath(spec.options["path"].as_string(), context);
  const std::string& dtype = spec.options["dtype"].as_string();
  const int64_t length = spec.options["length"].as_int();
  const Value& option = spec.options["vocabulary"];
  const int64_t vocabulary = option.is_null() ? 0 : option.as_int();
  const int width = dtype == "uint8" ? 1 : dtype == "int32" ? 4 : dtype == "int64" ? 8 : 2;
  return std::make_unique<TokenFile>(path, width, length, vocabulary);
}

}  // namespace strata::data
