#include "engine/picture/picture.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/base/value.h"

namespace strata::picture {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";  // U+FFFD

bool IsControl(unsigned char c) { return c < 0x20 || c == 0x7F; }

/// True at U+FFFE and U+FFFF, which XML does not allow.
bool IsNoCharacter(const std::string& text, size_t at) {
  const std::string_view three = std::string_view(text).substr(at, 3);
  return three == "\xEF\xBF\xBE" || three == "\xEF\xBF\xBF";
}

/// The start of the last UTF-8 character that starts at or before byte `limit`.
size_t CharacterAt(const std::string& text, size_t limit) {
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xC0) == 0x80) --limit;
  return limit;
}

size_t MostLanes(const Picture& picture) {
  size_t lanes = 0;
  for (const Timeline& timeline : picture.timelines) {
    lanes = std::max(lanes, timeline.lanes.size());
  }
  return lanes;
}

}  // namespace

double Timeline::span() const {
  double span = 0;
  for (const Lane& lane : lanes) {
    for (const schedule::Interval& time : lane.times) span = std::max(span, time.end);
  }
  return span;
}

std::string Detail::Note() const {
  std::string note;
  if (!communication) note = "sends and receives are left out";
  if (every > 1) note += Str(", and only one of every ", every, " ranks, and the last, is drawn");
  return note.empty() ? "" : Str("To keep the file small, ", note, ".");
}

std::string WriteWithin(size_t most, const Picture& picture,
                        const std::function<std::string(const Detail&)>& write) {
  const size_t lanes = MostLanes(picture);
  for (Detail detail;;
       detail.communication ? void(detail.communication = false) : void(detail.every *= 2)) {
    std::string text = write(detail);
    if (text.size() <= most) return text;
    if (!detail.communication && detail.every >= lanes) {
      throw ConfigError(Str("a picture of two of the ranks alone has ", FormatBytes(text.size()),
                            ", and the most is ", FormatBytes(most),
                            ": fewer micro-batches make a smaller one"));
    }
  }
}

std::string CleanText(const std::string& text, size_t limit) {
  // ToJson() replaces bytes that are not UTF-8.
  const std::string valid = Value::FromJson(Value(text.substr(0, 4 * limit)).ToJson()).as_string();
  std::string clean;
  for (size_t i = 0; i < valid.size(); ++i) {
    if (IsControl(static_cast<unsigned char>(valid[i]))) {
      clean += kReplacement;
    } else if (IsNoCharacter(valid, i)) {
      clean += kReplacement;
      i += 2;
    } else {
      clean += valid[i];
    }
  }
  if (clean.size() <= limit) return clean;
  return clean.substr(0, CharacterAt(clean, limit - 3)) + "...";
}

}  // namespace strata::picture
