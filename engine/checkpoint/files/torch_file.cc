// In both forms a pickle describes the tensors as views (offset, shape, strides) of storages, and
// the storages' bytes are elsewhere in the file. The constructor reads the pickle, finds the
// position of each storage, walks the dicts and lists to name the tensors, and checks that every
// tensor lies within its storage. Read() reads a contiguous tensor directly; for one with other
// strides, Gather() first copies its elements into a row.
#include "engine/checkpoint/files/torch_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/digest.h"
#include "engine/checkpoint/files/safetensors.h"
#include "engine/checkpoint/files/tensor_name.h"
#include "engine/checkpoint/files/zip_file.h"

namespace strata {
namespace {

using Kind = PickleNode::Kind;

constexpr std::string_view kZip = "PK\x03\x04";
// The old form begins with a pickle of protocol 2 that is this number.
constexpr std::string_view kOldForm =
    "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e";
constexpr int64_t kLargestPickle = int64_t{64} << 20;
constexpr size_t kMostTensors = 200000, kDeepest = 100;

int64_t ItemBytes(const std::string& dtype) { return DTypeSize(*FromStoredName(dtype)); }

/// True if the strides are those of a tensor whose elements are contiguous in row-major order. The
/// strides of dims of size 1 do not matter.
bool LiesInARow(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  int64_t expected = 1;
  for (size_t dim = shape.size(); dim-- > 0;) {
    if (shape[dim] != 1 && strides[dim] != expected) return false;
    expected *= shape[dim];
  }
  return true;
}

/// Walks dicts and lists, and calls `take` for each tensor with its name. The number of visits is
/// limited: a file may refer to one dict from another any number of times, so few bytes can stand
/// for very many tensors.
class Walk {
 public:
  using Take = std::function<void(const std::string& name, const PickleNode& tensor)>;
  Walk(const Pickle& pickle, const Take& take, const std::string& source)
      : pickle_(pickle), take_(take), source_(source) {}

  void Visit(int index, const std::string& name, size_t depth) {
    if (++visited_ > 10 * kMostTensors || depth > kDeepest) {
      throw WorldError(Str(source_, ": its pickle is refused: too many names, or too deep"));
    }
    const PickleNode& node = pickle_.nodes[static_cast<size_t>(index)];
    if (node.kind == Kind::kTensor) return take_(name, node);
    const std::string before = name.empty() ? "" : Str(name, ".");
    if (node.kind == Kind::kDict) {
      for (size_t i = 0; i + 1 < node.items.size(); i += 2) {
        Visit(node.items[i + 1], before + KeyText(node.items[i]), depth + 1);
      }
    } else if (node.kind == Kind::kList || node.kind == Kind::kTuple) {
      for (size_t i = 0; i < node.items.size(); ++i) {
        Visit(node.items[i], Str(before, i), depth + 1);
      }
    }
  }

 private:
  std::string KeyText(int index) const {
    const PickleNode& key = pickle_.nodes[static_cast<size_t>(index)];
    return key.kind == Kind::kInt ? std::to_string(key.number) : key.text;
  }

  const Pickle& pickle_;
  const Take& take_;
  const std::string& source_;
  size_t visited_ = 0;
};

}  // namespace

bool TorchFile::Recognizes(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  const InputFile file(path);
  std::string first(kOldForm.size(), '\0');
  if (file.size() < static_cast<int64_t>(first.size())) return false;
  file.ReadAt(0, first.data(), static_cast<int64_t>(first.size()));
  return first.starts_with(kZip) || first == kOldForm;
}

TorchFile::TorchFile(const std::string& path) : file_(path) {
  char first = 0;
  if (file_.size() > 0) file_.ReadAt(0, &first, 1);
  first == kZip[0] ? ReadArchive() : ReadOldForm();
  if (tensors_.empty()) Refuse("there is no tensor in it");
}

void TorchFile::Refuse(const std::string& what) const {
  throw WorldError(Str(file_.path(), ": ", what));
}

void TorchFile::ReadArchive() {
  const std::vector<ZipEntry> entries = ReadZip(file_);
  const auto pickle = std::ranges::find_if(
      entries, [](const ZipEntry& entry) { return entry.name.ends_with("/data.pkl"); });
  if (pickle == entries.end()) Refuse("a zip without data.pkl: torch.save() did not write it");
  if (pickle->bytes > kLargestPickle)
    Refuse("its pickle is larger than any that describes tensors");
  const auto read = [&](const ZipEntry& entry) {
    std::string text(static_cast<size_t>(entry.bytes), '\0');
    file_.ReadAt(entry.offset, text.data(), entry.bytes);
    return text;
  };
  const std::string folder = pickle->name.substr(0, pickle->name.size() - std::strlen("data.pkl"));
  Storages storages;
  for (const ZipEntry& entry : entries) {
    if (entry.method != 0) Refuse(Str("its entry ", QuotedName(entry.name), " is compressed"));
    if (entry.name == folder + "byteorder" && entry.bytes < 100 && read(entry) != "little") {
      Refuse("its numbers are big-endian");
    }
    const std::string data = folder + "data/";
    if (!entry.name.starts_with(data)) continue;
    storages[entry.name.substr(data.size())] = {entry.offset, entry.bytes};
  }
  const std::string text = read(*pickle);
  header_digest_ = StrongDigest(text);
  AddTensors(ReadPickle(text, path()), storages);
}

/// The old form: pickles of a number, a version, the system, the tensors and the storages' keys;
/// then, for each key, its number of elements and their bytes.
void TorchFile::ReadOldForm() {
  // A pickle says itself where it ends, so the longest possible text is read at once.
  std::string text(static_cast<size_t>(std::min(file_.size(), kLargestPickle)), '\0');
  file_.ReadAt(0, text.data(), static_cast<int64_t>(text.size()));
  std::string_view rest = text;
  if (!rest.starts_with(kOldForm)) Refuse("torch.save() did not write it");
  rest.remove_prefix(kOldForm.size());
  const auto next = [&] {
    Pickle pickle = ReadPickle(rest, path());
    rest.remove_prefix(pickle.bytes);
    return pickle;
  };
  next();  // version
  next();  // system
  const Pickle tensors = next(), keys = next();
  header_digest_ = StrongDigest(std::string_view(text).substr(0, text.size() - rest.size()));
  std::map<std::string, int64_t> items;
  for (const PickleNode& node : tensors.nodes) {
    if (node.kind == Kind::kStorage && !node.dtype.empty())
      items[node.text] = ItemBytes(node.dtype);
  }
  auto place = static_cast<int64_t>(text.size() - rest.size());
  Storages storages;
  for (const int index : keys.nodes[static_cast<size_t>(keys.root)].items) {
    const std::string& key = keys.nodes[static_cast<size_t>(index)].text;
    int64_t bytes = 0;
    if (file_.size() - place < 8 || !items.contains(key)) Refuse("its storages are cut off");
    file_.ReadAt(place, &bytes, 8);
    place += 8;
    const bool fits = bytes >= 0 && !__builtin_mul_overflow(bytes, items[key], &bytes) &&
                      bytes <= file_.size() - place;
    if (!fits) Refuse("its storages are cut off");
    storages[key] = {place, bytes};
    place += bytes;
  }
  AddTensors(tensors, storages);
}

void TorchFile::AddTensors(const Pickle& pickle, const Storages& storages) {
  const Walk::Take take = [&](const std::string& name, const PickleNode& node) {
    AddTensor(name, pickle, node, storages);
  };
  if (pickle.nodes[static_cast<size_t>(pickle.root)].kind == Kind::kTensor) {
    Refuse(
        "it holds a single tensor; expected several with names, as torch.save(model.state_dict(), "
        "FILE) writes them");
  }
  Walk(pickle, take, path()).Visit(pickle.root, "", 0);
}

void TorchFile::AddTensor(const std::string& name, const Pickle& pickle, const PickleNode& node,
                          const Storages& storages) {
  const std::string own = Str("tensor ", QuotedName(name));
  if (const std::string trouble = TroubleWithTensorName(name); !trouble.empty()) {
    Refuse(Str(own, ": no name for a tensor: ", trouble));
  }
  if (tensors_.size() == kMostTensors) Refuse("too many tensors");
  const auto storage = storages.find(pickle.nodes[static_cast<size_t>(node.items[0])].text);
  if (storage == storages.end()) Refuse(own + ": its storage is not in the file");
  const int64_t item = ItemBytes(node.dtype);
  // The index of the tensor's last element in the storage, and the tensor's own size in bytes.
  int64_t last = node.number, bytes = item, step = 0;
  bool fits = true;
  const bool is_empty = std::ranges::count(node.shape, 0) > 0;
  for (size_t dim = 0; dim < node.shape.size() && !is_empty; ++dim) {
    fits &= !__builtin_mul_overflow(node.shape[dim] - 1, node.strides[dim], &step) &&
            !__builtin_add_overflow(last, step, &last) &&
            !__builtin_mul_overflow(bytes, node.shape[dim], &bytes);
  }
  if (is_empty) bytes = 0;
  fits &= is_empty || (last < storage->second.bytes / item);
  // Strides of 0 would let few bytes stand for many; a tensor may not have more bytes than the
  // file.
  if (!fits || bytes > file_.size()) Refuse(own + " goes beyond its storage");
  if (!places_.try_emplace(name).second) Refuse(own + " comes twice");
  places_[name] = {is_empty ? 0 : storage->second.offset + node.number * item, item, node.strides,
                   is_empty || LiesInARow(node.shape, node.strides)};
  tensors_.push_back({name, node.dtype, node.shape, 0, bytes});
}

void TorchFile::Read(const StoredTensor& tensor, int64_t begin, void* to, int64_t bytes) const {
  STRATA_CHECK(begin >= 0 && bytes >= 0 && begin <= tensor.bytes && bytes <= tensor.bytes - begin)
      << tensor.name << ": " << begin << " + " << bytes << " of " << tensor.bytes;
  const Place& place = places_.find(tensor.name)->second;
  if (place.is_contiguous) return file_.ReadAt(place.offset + begin, to, bytes);
  const std::lock_guard lock(mutex_);
  if (gathered_ != tensor.name) Gather(tensor, place);
  std::memcpy(to, elements_.data() + begin, static_cast<size_t>(bytes));
}

/// Reads the bytes between the tensor's first and last element, and copies its elements into a row.
void TorchFile::Gather(const StoredTensor& tensor, const Place& place) const {
  int64_t last = 0;
  for (size_t dim = 0; dim < tensor.shape.size(); ++dim) {
    last += (tensor.shape[dim] - 1) * place.strides[dim];
  }
  std::vector<char> span(static_cast<size_t>((last + 1) * place.item));
  file_.ReadAt(place.offset, span.data(), static_cast<int64_t>(span.size()));
  gathered_.clear();
  elements_.resize(static_cast<size_t>(tensor.bytes));
  std::vector<int64_t> index(tensor.shape.size(), 0);
  int64_t from = 0;
  for (int64_t done = 0; done < tensor.bytes; done += place.item) {
    std::memcpy(elements_.data() + done, span.data() + from * place.item,
                static_cast<size_t>(place.item));
    for (size_t dim = index.size(); dim-- > 0;) {
      from += place.strides[dim];
      if (++index[dim] < tensor.shape[dim]) break;
      from -= index[dim] * place.strides[dim];
      index[dim] = 0;
    }
  }
  gathered_ = tensor.name;
}

}  // namespace strata
