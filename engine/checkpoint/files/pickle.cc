// An interpreter for pickles, which are programs for a stack machine. The opcodes are those of
// Python's Lib/pickletools.py, the functions those of torch/_utils.py. Machine executes one opcode
// after the other: it pushes nodes, combines those at the top of the stack or above a mark, and
// remembers nodes in a memo. A call of a known function becomes a node; any other function or
// opcode is refused. Memory is limited in proportion to the size of the pickle, since a memo lets
// few bytes push a long text again and again.
#include "engine/checkpoint/files/pickle.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <map>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/tensor_name.h"

namespace strata {
namespace {

using Kind = PickleNode::Kind;

// Nodes have some 200 bytes, and one byte of the file can create one.
constexpr size_t kMostNodes = 1000000;
constexpr size_t kMostPushed = 16;     // bytes of texts and shapes per byte of the file
constexpr size_t kMostArguments = 64;  // of a function; also the most dims of a tensor

/// torch's dtypes, with the legacy storage class and the safetensors name of each.
struct DTypeNames {
  const char* dtype;
  const char* storage;
  const char* stored;
};
constexpr std::array<DTypeNames, 11> kDTypes = {{
    {"torch.float32", "torch.FloatStorage", "F32"},
    {"torch.float64", "torch.DoubleStorage", "F64"},
    {"torch.float16", "torch.HalfStorage", "F16"},
    {"torch.bfloat16", "torch.BFloat16Storage", "BF16"},
    {"torch.int64", "torch.LongStorage", "I64"},
    {"torch.int32", "torch.IntStorage", "I32"},
    {"torch.int16", "torch.ShortStorage", "I16"},
    {"torch.int8", "torch.CharStorage", "I8"},
    {"torch.uint8", "torch.ByteStorage", "U8"},
    {"torch.bool", "torch.BoolStorage", "BOOL"},
    {"", "torch.storage.UntypedStorage", ""},
}};

const DTypeNames* FindDType(const char* DTypeNames::*name, std::string_view text) {
  const auto found = std::ranges::find(
      kDTypes, text, [&](const DTypeNames& d) { return std::string_view(d.*name); });
  return found == kDTypes.end() || text.empty() ? nullptr : &*found;
}

class Machine {
 public:
  Machine(std::string_view bytes, const std::string& source) : bytes_(bytes), source_(source) {}

  Pickle Run() {
    while (!Step()) {
      if (std::max(nodes_.size(), stack_.size()) > kMostNodes) Refuse("it builds too much");
    }
    Pickle pickle;
    pickle.root = Pop();
    pickle.nodes = std::move(nodes_);
    pickle.bytes = place_;
    return pickle;
  }

 private:
  [[noreturn]] void Refuse(const std::string& what) const {
    throw WorldError(Str(source_, ": its pickle is refused at byte ", at_, ": ", what));
  }

  // ---- bytes

  std::string_view Take(uint64_t count) {
    if (count > bytes_.size() - place_) Refuse("it is cut off");
    const std::string_view piece = bytes_.substr(place_, count);
    place_ += count;
    return piece;
  }

  template <class T>
  T Number() {
    T number;
    std::memcpy(&number, Take(sizeof(T)).data(), sizeof(T));
    return number;
  }

  double BigEndianDouble() { return std::bit_cast<double>(__builtin_bswap64(Number<uint64_t>())); }

  /// An integer of `count` bytes in two's complement.
  int64_t Long(uint64_t count) {
    const std::string_view piece = Take(count);
    if (count > 8) Refuse("an integer of more than 64 bits");
    uint64_t number = 0;
    for (size_t i = piece.size(); i-- > 0;) number = number << 8 | static_cast<uint8_t>(piece[i]);
    const bool is_negative = count > 0 && static_cast<uint8_t>(piece.back()) >= 0x80;
    if (is_negative && count < 8) number -= uint64_t{1} << (8 * count);
    return static_cast<int64_t>(number);
  }

  std::string_view Line() {
    const size_t end = bytes_.find('\n', place_);
    if (end == std::string_view::npos) Refuse("it is cut off");
    const std::string_view line = Take(end - place_);
    ++place_;
    return line;
  }

  template <class T>
  T NumberOfLine() {
    std::string_view line = Line();
    if (line.ends_with('L')) line.remove_suffix(1);
    T number = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
    if (error != std::errc() || end != line.data() + line.size()) Refuse("a number that is none");
    return number;
  }

  // ---- the stack

  /// Pushes a new node. The total size of pushed texts and shapes is limited by the file's size,
  /// since few of its bytes may push one long text or shape again and again.
  void Push(PickleNode node) {
    pushed_ += node.text.size() + sizeof(int64_t) * (node.shape.size() + node.strides.size());
    if (pushed_ > kMostPushed * (bytes_.size() + 1000)) Refuse("it builds too much");
    stack_.push_back(static_cast<int>(nodes_.size()));
    nodes_.push_back(std::move(node));
  }
  void PushInt(int64_t number) { Push({.kind = Kind::kInt, .number = number}); }
  void PushText(std::string_view text) { Push({.kind = Kind::kText, .text = std::string(text)}); }

  int Pop() {
    const size_t bottom = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() <= bottom) Refuse("it takes from an empty stack");
    const int node = stack_.back();
    stack_.pop_back();
    return node;
  }

  std::vector<int> PopToMark() {
    if (marks_.empty()) Refuse("it takes to a mark that is not there");
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<int> items(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return items;
  }

  std::vector<int> PopCount(int count) {
    std::vector<int> items;
    for (int i = 0; i < count; ++i) items.push_back(Pop());
    std::ranges::reverse(items);
    return items;
  }

  PickleNode& Top(Kind kind, const char* what) {
    const int node = Pop();
    stack_.push_back(node);
    if (at(node).kind != kind) Refuse(Str("it adds to what is no ", what));
    return at(node);
  }

  PickleNode& at(int node) { return nodes_[static_cast<size_t>(node)]; }

  void Extend(Kind kind, const char* what, const std::vector<int>& items) {
    if (kind == Kind::kDict && items.size() % 2 != 0) Refuse("a dict's key has no value");
    PickleNode& node = Top(kind, what);
    node.items.insert(node.items.end(), items.begin(), items.end());
  }

  void Remember(uint64_t key) {
    const int node = Pop();
    stack_.push_back(node);
    memo_[key] = node;
  }
  void Recall(uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) Refuse("it recalls what it did not keep");
    stack_.push_back(found->second);
  }

  // ---- tensors

  /// The items of a tuple, of which there must be at least `least`. The reference is valid until
  /// the next Push().
  const std::vector<int>& TupleOf(int node, size_t least, const char* what) {
    const size_t count = at(node).items.size();
    if (at(node).kind != Kind::kTuple || count < least || count > kMostArguments) {
      Refuse(Str(what, " with wrong arguments"));
    }
    return at(node).items;
  }

  const PickleNode& Expect(int node, Kind kind, const char* what) {
    if (at(node).kind != kind) Refuse(Str(what, " is of a wrong kind"));
    return at(node);
  }

  std::vector<int64_t> Sizes(int node, const char* what) {
    std::vector<int64_t> sizes;
    for (const int item : TupleOf(node, 0, what)) {
      sizes.push_back(Expect(item, Kind::kInt, what).number);
      if (sizes.back() < 0) Refuse(Str(what, " below 0"));
    }
    return sizes;
  }

  /// Pops the tuple ("storage", torch.FloatStorage, key, device, elements) and pushes a storage.
  void PersistentId() {
    const std::vector<int>& items = TupleOf(Pop(), 5, "a storage");
    if (Expect(items[0], Kind::kText, "a storage").text != "storage") Refuse("no storage");
    const std::string& type = Expect(items[1], Kind::kGlobal, "a storage's type").text;
    const DTypeNames* names = FindDType(&DTypeNames::storage, type);
    if (!names) Refuse(Str(QuotedName(type), ", a storage that Strata does not know"));
    const int64_t elements = Expect(items[4], Kind::kInt, "a storage's size").number;
    if (elements < 0) Refuse("a storage of less than nothing");
    Push({.kind = Kind::kStorage,
          .number = elements,
          .text = Expect(items[2], Kind::kText, "a storage's key").text,
          .dtype = names->stored});
  }

  /// Refuses metadata of a tensor, such as "neg" and "conj", which says that the tensor's numbers
  /// differ from those in its storage.
  void ExpectNoMetadata(int node) {
    const PickleNode& metadata = at(node);
    const bool is_empty = metadata.kind == Kind::kNone || metadata.kind == Kind::kDict;
    if (is_empty && metadata.items.empty()) return;
    const std::string name = metadata.items.empty() ? "" : at(metadata.items[0]).text;
    Refuse(Str("a tensor with the metadata ", QuotedName(name),
               ", whose numbers are not those of its storage; save a clone() of it"));
  }

  /// Pushes the result of torch._utils._rebuild_tensor_v2(storage, offset, size, stride,
  /// requires_grad, hooks, metadata); v3 has the dtype before the metadata.
  void RebuildTensor(const std::vector<int>& arguments, bool has_dtype) {
    const size_t metadata = has_dtype ? 7 : 6;
    if (arguments.size() > metadata) ExpectNoMetadata(arguments[metadata]);
    PickleNode tensor = {.kind = Kind::kTensor};
    tensor.dtype = Expect(arguments[0], Kind::kStorage, "a tensor's storage").dtype;
    if (has_dtype) {
      const std::string& name = Expect(arguments[6], Kind::kGlobal, "a tensor's dtype").text;
      const DTypeNames* names = FindDType(&DTypeNames::dtype, name);
      if (!names) Refuse(Str(QuotedName(name), ", a dtype that Strata does not know"));
      tensor.dtype = names->stored;
    }
    if (tensor.dtype.empty()) Refuse("a tensor without a dtype");
    tensor.number = Expect(arguments[1], Kind::kInt, "a tensor's offset").number;
    tensor.shape = Sizes(arguments[2], "a tensor's shape");
    tensor.strides = Sizes(arguments[3], "a tensor's strides");
    if (tensor.number < 0 || tensor.shape.size() != tensor.strides.size()) {
      Refuse("a tensor whose shape, strides and offset do not fit");
    }
    tensor.items = {arguments[0]};
    Push(std::move(tensor));
  }

  // ---- functions

  void Global(std::string name) {
    static const std::vector<std::string_view> known = {
        "collections.OrderedDict",         "torch._utils._rebuild_tensor_v2",
        "torch._utils._rebuild_tensor_v3", "torch._utils._rebuild_tensor",
        "torch._utils._rebuild_parameter", "torch.Size"};
    const bool is_known = std::ranges::find(known, name) != known.end() ||
                          FindDType(&DTypeNames::dtype, name) ||
                          FindDType(&DTypeNames::storage, name);
    if (!is_known) {
      Refuse(Str(QuotedName(name), ": known are tensors, dicts, lists, tuples, numbers and texts; ",
                 "save the model's state_dict() alone"));
    }
    Push({.kind = Kind::kGlobal, .text = std::move(name)});
  }

  void Call() {
    const int arguments = Pop();
    const std::string function = Expect(Pop(), Kind::kGlobal, "a function").text;
    const char* what = "a function";
    if (function == "collections.OrderedDict") {
      if (!TupleOf(arguments, 0, what).empty()) Refuse("an OrderedDict with arguments");
      return Push({.kind = Kind::kDict});
    }
    if (function == "torch.Size") {
      return stack_.push_back(TupleOf(arguments, 1, what)[0]);
    }
    if (function == "torch._utils._rebuild_parameter") {
      const int data = TupleOf(arguments, 2, what)[0];
      Expect(data, Kind::kTensor, "a parameter");
      return stack_.push_back(data);
    }
    if (function.starts_with("torch._utils._rebuild_tensor")) {
      const bool has_dtype = function.ends_with("_v3");
      return RebuildTensor(TupleOf(arguments, has_dtype ? 7 : 4, what), has_dtype);
    }
    Refuse(Str(QuotedName(function), " is called"));
  }

  /// Sets an object's attributes. Those of an OrderedDict (a state_dict's _metadata) are ignored;
  /// other objects with attributes are refused.
  void Build() {
    Pop();
    Top(Kind::kDict, "OrderedDict");
  }

  // ---- opcodes; Step() returns true at the last one

  bool Step() {
    at_ = place_;
    const char code = Take(1)[0];
    return code == '.' || (!Atom(code) && !Collection(code) && !Reference(code) && Unknown(code));
  }

  [[noreturn]] bool Unknown(char code) const {
    Refuse(Str("the opcode ", QuotedName({&code, 1}), " builds what is no tensor, dict, list, ",
               "tuple, number or text"));
  }

  bool Atom(char code) {
    switch (code) {
      case '\x80':
        Take(1);
        return true;  // PROTO
      case '\x95':
        Take(8);
        return true;  // FRAME
      case 'N':
        Push({});
        return true;
      case '\x88':
      case '\x89':
        Push({.kind = Kind::kBool, .number = code == '\x88'});
        return true;
      case 'K':
        PushInt(Number<uint8_t>());
        return true;
      case 'M':
        PushInt(Number<uint16_t>());
        return true;
      case 'J':
        PushInt(Number<int32_t>());
        return true;
      case 'I':
      case 'L':
        PushInt(NumberOfLine<int64_t>());
        return true;
      case '\x8a':
        PushInt(Long(Number<uint8_t>()));
        return true;
      case '\x8b':
        PushInt(Long(Number<uint32_t>()));
        return true;
      case 'G':
        Push({.kind = Kind::kFloat, .real = BigEndianDouble()});
        return true;
      case 'F':
        Push({.kind = Kind::kFloat, .real = NumberOfLine<double>()});
        return true;
      case 'U':
      case 'C':
      case '\x8c':
        PushText(Take(Number<uint8_t>()));
        return true;
      case 'T':
      case 'B':
      case 'X':
        PushText(Take(Number<uint32_t>()));
        return true;
      case '\x8d':
      case '\x8e':
        PushText(Take(Number<uint64_t>()));
        return true;
      default:
        return false;
    }
  }

  bool Collection(char code) {
    switch (code) {
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case ')':
        Push({.kind = Kind::kTuple});
        return true;
      case ']':
        Push({.kind = Kind::kList});
        return true;
      case '}':
        Push({.kind = Kind::kDict});
        return true;
      case 't':
        Push({.kind = Kind::kTuple, .items = PopToMark()});
        return true;
      case 'l':
        Push({.kind = Kind::kList, .items = PopToMark()});
        return true;
      case 'd': {
        auto items = PopToMark();
        if (items.size() % 2 != 0) Refuse("a dict's key has no value");
        Push({.kind = Kind::kDict, .items = std::move(items)});
        return true;
      }
      case '\x85':
      case '\x86':
      case '\x87':
        Push({.kind = Kind::kTuple, .items = PopCount(code - '\x85' + 1)});
        return true;
      case 'a': {
        const int item = Pop();
        Extend(Kind::kList, "list", {item});
        return true;
      }
      case 'e': {
        const auto items = PopToMark();
        Extend(Kind::kList, "list", items);
        return true;
      }
      case 's': {
        const auto items = PopCount(2);
        Extend(Kind::kDict, "dict", items);
        return true;
      }
      case 'u': {
        const auto items = PopToMark();
        Extend(Kind::kDict, "dict", items);
        return true;
      }
      case '0':
        Pop();
        return true;
      case '1':
        PopToMark();
        return true;
      default:
        return false;
    }
  }

  bool Reference(char code) {
    switch (code) {
      case '2': {
        const int top = Pop();
        stack_.push_back(top);
        stack_.push_back(top);
        return true;
      }
      case 'q':
        Remember(Number<uint8_t>());
        return true;
      case 'r':
        Remember(Number<uint32_t>());
        return true;
      case '\x94':
        Remember(memo_.size());
        return true;
      case 'h':
        Recall(Number<uint8_t>());
        return true;
      case 'j':
        Recall(Number<uint32_t>());
        return true;
      case 'c': {
        const std::string_view module = Line();
        Global(Str(module, ".", Line()));
        return true;
      }
      case '\x93': {
        const auto names = PopCount(2);
        Global(Str(Expect(names[0], Kind::kText, "a module").text, ".",
                   Expect(names[1], Kind::kText, "a name").text));
        return true;
      }
      case 'Q':
        PersistentId();
        return true;
      case 'R':
        Call();
        return true;
      case 'b':
        Build();
        return true;
      default:
        return false;
    }
  }

  const std::string_view bytes_;
  const std::string& source_;
  size_t place_ = 0, at_ = 0;
  std::vector<PickleNode> nodes_;
  size_t pushed_ = 0;  // total bytes of texts and shapes
  std::vector<int> stack_;
  std::vector<size_t> marks_;
  std::map<uint64_t, int> memo_;
};

}  // namespace

Pickle ReadPickle(std::string_view bytes, const std::string& source) {
  return Machine(bytes, source).Run();
}

}  // namespace strata
