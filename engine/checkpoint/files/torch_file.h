// Reads tensors from files that torch.save() wrote: a zip with the pickle that describes them and
// each storage as it is in memory, or the older form (before PyTorch 1.6), a single file of pickles
// followed by the storages.
//
// A tensor's name is its path in the dicts and lists: {"model": {"fc.weight": T}} is
// "model.fc.weight". Values that are not tensors (an epoch, an optimizer's rates) are ignored.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/files/file.h"
#include "engine/checkpoint/files/pickle.h"
#include "engine/checkpoint/files/tensor_file.h"

namespace strata {

class TorchFile : public TensorFile {
 public:
  /// True if the file begins as files of torch.save() do. False also if there is no such file.
  static bool Recognizes(const std::string& path);

  /// Reads the pickle, but no storages. The file is not trusted: throws WorldError that names the
  /// file for everything that ReadZip() and ReadPickle() refuse, for storages that are missing or
  /// shorter than the pickle says, tensors beyond their storage, names that TroubleWithTensorName()
  /// refuses, and a file without tensors.
  explicit TorchFile(const std::string& path);

  const char* format() const override { return "PyTorch"; }
  const std::string& path() const override { return file_.path(); }
  int64_t file_bytes() const override { return file_.size(); }
  const std::string& header_digest() const override { return header_digest_; }
  void Read(const StoredTensor& tensor, int64_t begin, void* to, int64_t bytes) const override;

 private:
  struct Place {
    int64_t offset = 0;  // of the first element, from the beginning of the file
    int64_t item = 0;
    std::vector<int64_t> strides;
    bool is_contiguous = true;
  };
  struct Storage {
    int64_t offset = 0;
    int64_t bytes = 0;
  };
  using Storages = std::map<std::string, Storage>;

  [[noreturn]] void Refuse(const std::string& what) const;
  void ReadArchive();
  void ReadOldForm();
  void AddTensors(const Pickle& pickle, const Storages& storages);
  void AddTensor(const std::string& name, const Pickle& pickle, const PickleNode& node,
                 const Storages& storages);
  void Gather(const StoredTensor& tensor, const Place& place) const;

  InputFile file_;
  std::string header_digest_;
  std::map<std::string, Place, std::less<>> places_;
  mutable std::mutex mutex_;
  // The name of the non-contiguous tensor that was read last.
  mutable std::string gathered_;
  // The elements of that tensor in a row.
  mutable std::vector<char> elements_;
};

}  // namespace strata
