// The data source "text": the bytes of text files, cut into pieces for next-byte prediction.
#include "engine/base/text.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "engine/base/error.h"
#include "engine/data/sources.h"

namespace strata::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kHeldOut = 10;                                 // every tenth piece
const char* const kLicenceTexts = "/usr/share/common-licenses";  // on every Debian machine

class TextBytes : public Dataset {
 public:
  TextBytes(std::string text, int64_t length, bool train)
      : text_(std::move(text)), length_(length), train_(train) {}
  int64_t size() const override { return SplitSize(Pieces(text_, length_), kHeldOut, train_); }
  TensorSpec input() const override { return {{length_}, DType::kInt64}; }
  TensorSpec target() const override { return {{length_}, DType::kInt64}; }
  int64_t classes() const override { return 256; }
  void Read(int64_t index, std::byte* input, std::byte* target) const override {
    const int64_t begin = SplitPlace(index, kHeldOut, train_) * length_;
    if (input) CopyBytes(begin, reinterpret_cast<int64_t*>(input));
    if (target) CopyBytes(begin + 1, reinterpret_cast<int64_t*>(target));
  }
  std::string description() const override {
    return Str("text: ", FormatBytes(static_cast<double>(text_.size())), ", ", FormatCount(size()),
               " pieces of ", length_, " bytes (", train_ ? "train" : "test", ")");
  }
  /// The number of pieces. The last piece needs one byte behind it, as its last target.
  static int64_t Pieces(const std::string& text, int64_t length) {
    return (static_cast<int64_t>(text.size()) - 1) / length;
  }

 private:
  void CopyBytes(int64_t begin, int64_t* out) const {
    for (int64_t i = 0; i < length_; ++i) {
      out[i] = static_cast<uint8_t>(text_[static_cast<size_t>(begin + i)]);
    }
  }
  std::string text_;
  int64_t length_;
  bool train_;
};

/// The file `path`, or the files of the folder `path`, sorted. Symbolic links in a folder are left
/// out, since they only repeat a file.
std::vector<std::string> Files(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path};
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    if (entry.is_regular_file() && !entry.is_symlink()) files.push_back(entry.path().string());
  }
  if (error) throw WorldError(Str("cannot read the folder ", path, ": ", error.message()));
  if (files.empty()) throw WorldError(Str("no file in the folder ", path));
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::unique_ptr<Dataset> OpenText(const DataSpec& spec, const DatasetContext& context) {
  const int64_t length = spec.options["length"].as_int();
  const Value& path = spec.options["path"];
  std::string text;
  for (const std::string& file :
       Files(path.is_null() ? kLicenceTexts : ResolvePath(path.as_string(), context))) {
    text += ReadFile(file, "text for training");
  }
  if (TextBytes::Pieces(text, length) < kHeldOut) {
    throw WorldError(Str("text: expected at least ", kHeldOut, " pieces of ", length,
                         " bytes and one byte more, got ", text.size(), " bytes"));
  }
  return std::make_unique<TextBytes>(std::move(text), length, IsTrain(spec));
}

}  // namespace strata::data
