// Writes slices in pieces of 4 MiB and computes the digest of each slice on the way.
#include "engine/checkpoint/save_part.h"

#include <algorithm>
#include <map>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/digest.h"
#include "engine/checkpoint/files/safetensors.h"
#include "engine/checkpoint/save_folder.h"

namespace strata {
namespace {

constexpr int64_t kPiece = int64_t{4} << 20;

SavedTensor TensorOf(const OwnedSlice& owned) { return {owned.name, owned.kind, owned.spec, {}}; }

/// The slice's shape in the file: a box keeps its dims; a range of a box's elements has one dim.
std::vector<int64_t> StoredShape(const Slice& slice) {
  return slice.is_box() ? slice.shape : std::vector<int64_t>{slice.count};
}

/// Writes the bytes and returns their digest.
std::string WriteBytes(SafetensorsWriter& writer, const void* data, int64_t bytes,
                       const std::atomic<bool>& cancelled) {
  Hasher hasher;
  const auto* place = static_cast<const char*>(data);
  for (int64_t done = 0; done < bytes; done += kPiece) {
    if (cancelled) throw WorldError("the save was given up");
    const int64_t count = std::min(kPiece, bytes - done);
    hasher.Add(place + done, static_cast<size_t>(count));
    writer.Write(place + done, count);
  }
  return hasher.Digest();
}

}  // namespace

SavePart WritePart(const std::string& folder, int rank, const std::vector<OwnedSlice>& slices,
                   const std::atomic<bool>& cancelled) {
  SavePart part;
  if (slices.empty()) return part;
  const std::string file = RankFileName(rank);
  std::vector<TensorDeclaration> declarations;
  // Maps a name in the file to an index in `slices`.
  std::map<std::string, size_t> places;
  for (const OwnedSlice& owned : slices) {
    const std::string name = StoredSliceName(TensorOf(owned), owned.slice);
    places[name] = declarations.size();
    declarations.push_back({name, StoredName(owned.spec.dtype), StoredShape(owned.slice)});
    part.tensors.push_back(TensorOf(owned));
  }
  SafetensorsWriter writer(Str(folder, "/", file), declarations, {{"format", "pt"}});
  for (const StoredTensor& stored : writer.tensors()) {
    const size_t place = places.at(stored.name);
    const OwnedSlice& owned = slices[place];
    const std::string digest = WriteBytes(writer, owned.data, stored.bytes, cancelled);
    part.tensors[place].slices.push_back({owned.slice, file, digest});
  }
  writer.Finish();
  part.files.push_back({file, writer.file_bytes(), writer.header_digest()});
  return part;
}

}  // namespace strata
