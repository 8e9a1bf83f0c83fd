// The data source "csv": rows of a table. The file is gone through twice. The first pass
// (MakeScheme) determines for each column whether it holds numbers or words, its words, its mean
// and its deviation; the second (class Conversion) writes all cells as numbers, 4 bytes each, into
// prepared data (files/prepared.h), which is mapped from then on. When a sample is read (class
// Csv), a column of numbers gives one number, a column of words a 0 or 1 per word. With the option
// `like` the first pass reads the file of the training instead, so that test data is converted in
// the same way. The cost is linear in the size of the file.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/tensor_name.h"
#include "engine/data/files/csv_file.h"
#include "engine/data/files/data_progress.h"
#include "engine/data/files/mapped_file.h"
#include "engine/data/files/prepared.h"
#include "engine/data/sources.h"
#include "engine/job/table_encoding.h"

namespace strata::data {
namespace {

constexpr size_t kMostWords = 1000;

bool IsMissing(std::string_view text) {
  static constexpr std::string_view kWords[] = {"",     "NA",   "N/A",  "NaN", "nan",
                                                "null", "NULL", "None", "?"};
  constexpr size_t kLongest = 4;
  const bool is_other =
      text.size() > kLongest || (!text.empty() && text[0] >= '-' && text[0] <= '9');
  if (is_other) return false;  // nearly always; no word above begins like a number
  return std::ranges::find(kWords, text) != std::end(kWords);
}

/// A hash of texts that also takes a std::string_view.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

/// True if the number is finite after rounding to float.
bool FitsFloat(double number) {
  constexpr double kLeastInfinite = 0x1.ffffffp127;
  return std::abs(number) < kLeastInfinite;
}

/// The content of a column over all rows.
struct Column {
  std::string name;
  size_t place = 0;  // index of its cell in a row
  int64_t numbers = 0, words = 0, missing = 0;
  double mean = 0, squares = 0;  // of the numbers, by Welford's method
  double deviation = 1;          // set by Settle()
  bool is_whole = true;          // true if all numbers are whole and at least 0
  double most = 0;
  // Maps each distinct word to its number, for at most kMostWords + 1 words. Settle() numbers them
  // in the order of `word_list`. In a column of words, numbers are words, too.
  std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>> words_by_text;
  std::vector<std::string> word_list;  // sorted; filled by Settle()
  // Place and text of the first word and of the first number, for errors.
  std::string odd_word, odd_number;
  // The error for the first number that float32 cannot hold.
  std::string too_large;
  bool has_words() const { return words > numbers; }
  /// True if the column probably holds free texts: there are many words, and on average fewer than
  /// two rows share one.
  bool has_texts() const {
    constexpr size_t kFew = 20;
    return has_words() && word_list.size() > kFew && 2 * std::ssize(word_list) > words;
  }
  int64_t width() const { return has_words() ? std::ssize(word_list) : 1; }
  void AddWord(std::string_view text) {
    if (words_by_text.size() > kMostWords || words_by_text.contains(text)) return;
    words_by_text.emplace(text, 0);
  }
};

struct TableOptions {
  std::string path;
  char separator = ',';
  std::optional<bool> header = {};  // none: the user does not say; names are expected

  bool has_header() const { return header.value_or(true); }
};

/// A CSV file with column names. ForEachRow() calls body(row, reader) for every row behind the
/// header, and checks that it has as many cells as the first line; reader.Where() is its place.
class Table {
 public:
  explicit Table(const TableOptions& options)
      : options_(options), file_(options.path, "a table, comma-separated") {
    std::vector<CsvCell> row;
    if (!Reader().Next(row))
      throw WorldError(Str(options.path, ": expected a table, got an empty file"));
    for (size_t i = 0; i < row.size(); ++i) {
      names_.push_back(options.has_header() ? std::string(Trim(row[i].text)) : Str(i + 1));
    }
    CheckNames(row);
    const bool has_numbers = std::ranges::any_of(
        names_, [](const std::string& name) { return NumberIn(name).has_value(); });
    if (!options.header && has_numbers) {
      throw WorldError(Str(options.path, ":1: expected the columns' names, got numbers; ",
                           "header=true if these are names, header=false if they are a row"));
    }
  }
  const std::vector<std::string>& names() const { return names_; }
  const std::string& path() const { return options_.path; }
  char separator() const { return options_.separator; }

  int64_t bytes() const { return std::ssize(file_.text()); }

  template <class Body>
  void ForEachRow(DataProgress& progress, const Body& body) const {
    constexpr size_t kRead = size_t{16} << 20;  // bytes that stay in this process's memory
    CsvReader reader = Reader();
    const int64_t before = progress.done();
    std::vector<CsvCell> row;
    if (options_.has_header()) reader.Next(row);
    for (size_t released = 0; reader.Next(row);) {
      for (CsvCell& cell : row) {
        const bool is_plain =
            !cell.text.empty() && cell.text.front() > ' ' && cell.text.back() > ' ';
        if (!is_plain) cell.text = Trim(cell.text);  // a slow call, which few cells need
      }
      if (row.size() != names_.size()) {
        throw WorldError(Str(reader.Where(), ": expected ", Plural(names_.size(), "cell"),
                             ", as in the first line, got ", row.size()));
      }
      body(row, reader);
      progress.At(before + static_cast<int64_t>(reader.at()));
      if (reader.at() < released + kRead) continue;
      released = reader.at();
      file_.Release(released);
    }
  }

 private:
  void CheckNames(const std::vector<CsvCell>& header) const {
    std::map<std::string, size_t> places;
    for (size_t i = 0; i < names_.size(); ++i) {
      const auto [first, is_new] = places.emplace(names_[i], i);
      if (is_new) continue;
      throw WorldError(Str(options_.path, ":1:", header[i].column, ": the name \"", names_[i],
                           "\" is that of column ", first->second + 1,
                           ", too; columns need names of their own"));
    }
  }
  CsvReader Reader() const { return {file_.text(), options_.separator, options_.path}; }

  const TableOptions options_;
  const MappedFile file_;
  std::vector<std::string> names_;
};

std::string PlaceOf(const CsvReader& row, const CsvCell& cell, const Column& column) {
  return Str(row.Where(), ":", cell.column, ": column \"", column.name, "\"");
}

std::string TooLarge(const CsvReader& row, const CsvCell& cell, const Column& column) {
  return Str(PlaceOf(row, cell, column), ": expected a number that float32 holds, got ", cell.text);
}

void Note(Column& column, const CsvCell& cell, const CsvReader& row) {
  if (IsMissing(cell.text)) {
    ++column.missing;
    return;
  }
  const std::optional<double> number = NumberIn(cell.text);
  std::string& odd = number ? column.odd_number : column.odd_word;
  if (odd.empty()) odd = Str(PlaceOf(row, cell, column), ": \"", cell.text, "\"");
  if (!number) {
    ++column.words;
    column.AddWord(cell.text);
    return;
  }
  if (!FitsFloat(*number) && column.too_large.empty()) {
    column.too_large = TooLarge(row, cell, column);
  }
  ++column.numbers;
  const double change = *number - column.mean;
  column.mean += change / static_cast<double>(column.numbers);
  column.squares += change * (*number - column.mean);
  column.is_whole = column.is_whole && *number >= 0 && *number == std::floor(*number);
  column.most = std::max(column.most, *number);
}

/// Decides whether the column holds numbers or words, after all rows were read. A word in a column
/// that has mostly numbers is an error; a number in a column that has mostly words is taken as a
/// word.
void Settle(Column& column, const std::string& path) {
  if (column.numbers + column.words == 0) {
    throw WorldError(Str(path, ": column \"", column.name, "\" has no values"));
  }
  if (!column.has_words() && column.words > 0) {
    throw WorldError(Str(column.odd_word, " is no number, as the column's other cells are"));
  }
  if (!column.has_words()) {
    if (!column.too_large.empty()) throw WorldError(column.too_large);
    const double deviation = std::sqrt(column.squares / static_cast<double>(column.numbers));
    if (deviation > 0) column.deviation = deviation;
    return;
  }
  if (column.words_by_text.size() > kMostWords) {
    throw WorldError(Str(path, ": column \"", column.name, "\" has more than ", kMostWords,
                         " different words; leave it out by columns={...}"));
  }
  for (const auto& [word, number] : column.words_by_text) column.word_list.push_back(word);
  std::ranges::sort(column.word_list);
  for (size_t i = 0; i < column.word_list.size(); ++i) {
    column.words_by_text[column.word_list[i]] = static_cast<int32_t>(i);
  }
}

/// How cells become numbers: the content of all columns that are used, in the file of the training.
struct Scheme {
  std::vector<Column> inputs;
  Column target;
  bool has_classes = false;
  int64_t width = 0;

  int64_t classes() const {
    if (!has_classes) return 0;
    return target.has_words() ? std::ssize(target.word_list)
                              : static_cast<int64_t>(target.most) + 1;
  }
};

std::string NameOf(const Value& name) { return name.is_string() ? name.as_string() : name.ToLua(); }

/// A hint for a file that has one column, which usually means another separator; otherwise "".
std::string OneColumnHint(const Table& table) {
  if (table.names().size() != 1) return "";
  const auto text = [](char separator) {
    return Str("separator=\"", separator == '\t' ? "tab" : std::string(1, separator), "\"");
  };
  const std::string& name = table.names()[0];
  const size_t place = name.find_first_of("\t;|,");
  const char usual = table.separator() == ';' ? ',' : ';';
  constexpr size_t kShown = 60;
  return Str(": the file has one column, \"", name.substr(0, kShown),
             name.size() > kShown ? "..." : "", "\", with ", text(table.separator()), "; ",
             text(place == name.npos ? usual : name[place]), " may be meant");
}

Column ColumnOf(const Table& table, const Value& name) {
  const std::string text = NameOf(name);
  const auto found = std::ranges::find(table.names(), text);
  if (found == table.names().end()) {
    const std::string hint = OneColumnHint(table);
    throw WorldError(Str(table.path(), ": there is no column \"", text, "\"",
                         hint.empty() ? DidYouMean(text, table.names()) : hint));
  }
  Column column;
  column.name = text;
  column.place = static_cast<size_t>(found - table.names().begin());
  return column;
}

/// Adds the numbers of columns that have mostly words to their words. That takes another pass,
/// which few tables need: the first one does not keep numbers, since nearly all columns with
/// numbers have nothing else.
void AddNumbersAmongWords(const Table& table, Scheme& scheme, bool has_target,
                          DataProgress& progress) {
  std::vector<Column*> mixed;
  const auto add = [&](Column& column) {
    if (column.has_words() && column.numbers > 0) mixed.push_back(&column);
  };
  std::ranges::for_each(scheme.inputs, add);
  if (has_target) add(scheme.target);
  if (mixed.empty()) return;
  table.ForEachRow(progress, [&](const std::vector<CsvCell>& row, const CsvReader&) {
    for (Column* column : mixed) {
      const std::string_view text = row[column->place].text;
      if (!IsMissing(text)) column->AddWord(text);
    }
  });
}

/// Determines the scheme of a file. The inputs are the option `columns`, or else all columns except
/// the target. If `has_target` is false, the file has no target, and a column with its name is left
/// out.
Scheme MakeScheme(const Table& table, const Value& options, bool has_target,
                  DataProgress& progress) {
  Scheme scheme;
  const Value& target = options["target"];
  const Value named = has_target && target.is_null() ? Value(table.names().back()) : target;
  if (has_target) scheme.target = ColumnOf(table, named);
  const std::string left_out = named.is_null() ? "" : NameOf(named);
  if (options["columns"].is_null()) {
    for (const std::string& name : table.names()) {
      if (named.is_null() || name != left_out) scheme.inputs.push_back(ColumnOf(table, name));
    }
  } else if (options["columns"].is_list()) {
    for (const Value& name : options["columns"].as_list()) {
      scheme.inputs.push_back(ColumnOf(table, name));
    }
  }
  if (scheme.inputs.empty() && options["columns"].is_null()) {
    throw WorldError(
        Str(table.path(), ": there is no column beside the target", OneColumnHint(table)));
  }
  if (scheme.inputs.empty()) {
    throw ConfigError(Str("strata.data.csv: columns expects a list of names, got ",
                          options["columns"].Describe()));
  }
  table.ForEachRow(progress, [&](const std::vector<CsvCell>& row, const CsvReader& reader) {
    for (Column& column : scheme.inputs) Note(column, row[column.place], reader);
    if (has_target) Note(scheme.target, row[scheme.target.place], reader);
  });
  AddNumbersAmongWords(table, scheme, has_target, progress);
  for (Column& column : scheme.inputs) {
    Settle(column, table.path());
    scheme.width += column.width();
  }
  if (!has_target) return scheme;
  Settle(scheme.target, table.path());
  const std::string& task = options["task"].as_string();
  scheme.has_classes = task == "classes" || (task == "auto" && scheme.target.has_words());
  if (task == "numbers" && scheme.target.has_words()) {
    throw WorldError(Str(scheme.target.odd_word, " is no number, as task=\"numbers\" says"));
  }
  if (scheme.has_classes && !scheme.target.has_words() &&
      (!scheme.target.is_whole || scheme.target.most > 1e6)) {
    throw WorldError(Str(table.path(), ": column \"", scheme.target.name, "\" has numbers that ",
                         "are no classes: classes are words, or whole numbers from 0 on"));
  }
  return scheme;
}

/// Six digits, so that the order of the rows, which changes the last bits of a mean, does not
/// change the digest.
std::string Rounded(double number) { return Printf("%.6g", number); }

/// The columns with words, for a note, those with the most words first. Numbers in an unusual form
/// ("1,000") and dates are often among them by mistake.
std::string WordsText(const Scheme& scheme) {
  std::vector<const Column*> columns;
  for (const Column& column : scheme.inputs) {
    if (column.has_words()) columns.push_back(&column);
  }
  std::ranges::stable_sort(columns, std::greater(),
                           [](const Column* column) { return column->word_list.size(); });
  constexpr size_t kShown = 5;
  std::vector<std::string> texts;
  for (size_t i = 0; i < std::min(kShown, columns.size()); ++i) {
    const std::vector<std::string>& words = columns[i]->word_list;
    texts.push_back(Str(QuotedName(columns[i]->name), " (", Plural(std::ssize(words), "word"),
                        ", as ", QuotedName(words[0]), ")"));
  }
  return Join(texts, ", ") + (columns.size() > kShown ? ", ..." : "");
}

/// The names of the columns that probably hold free texts.
std::string TextsText(const Scheme& scheme) {
  std::vector<std::string> names;
  for (const Column& column : scheme.inputs) {
    if (column.has_texts()) names.push_back(QuotedName(column.name));
  }
  return Join(names, ", ");
}

/// How the cells of a table become numbers, by its options.
struct Rules {
  explicit Rules(const Value& options)
      : has_targets(options["targets"] != Value(false)),
        has_names(options["header"] != Value(false)),
        normalise(options["normalise"].as_bool()),
        fills(options["missing"] == Value("mean")),
        takes_unknown(options["unknown"] == Value("none")) {}
  const bool has_targets, has_names, normalise, fills, takes_unknown;
};

/// Writes the rows of a table. A cell takes 4 bytes: a number (float), a word of an input (its
/// number, or -1 for no word, int32) or the target (float, or the class as int32), the row's last.
class Conversion {
 public:
  Conversion(const Scheme& scheme, const Rules& rules) : scheme_(scheme), rules_(rules) {}

  /// Returns the facts that Csv reads.
  Value Write(const Table& table, PreparedWriter& to, DataProgress& progress) {
    int64_t rows = 0;
    table.ForEachRow(progress, [&](const std::vector<CsvCell>& row, const CsvReader& reader) {
      cells_.clear();
      for (const Column& column : scheme_.inputs) AddInput(column, row[column.place], reader);
      rules_.has_targets ? AddTarget(row[scheme_.target.place], reader) : Add(int32_t{0});
      to.Write(cells_.data(), cells_.size() * sizeof(cells_[0]));
      ++rows;
    });
    if (rows == 0) throw WorldError(Str(table.path(), ": expected rows, got only a header"));
    // A cell has no byte of zero, so one divides the texts. They need not be UTF-8, as JSON must.
    std::string texts;
    for (const std::string& text : Texts()) texts += text + '\0';
    to.Write(texts.data(), texts.size());
    Value::List words;
    for (const Column& column : scheme_.inputs) words.emplace_back(std::ssize(column.word_list));
    return Value::MakeMap({{"rows", rows},
                           {"words", std::move(words)},
                           {"has_classes", scheme_.has_classes},
                           {"classes", scheme_.classes()},
                           {"encoding", Encoding()}});
  }

 private:
  /// The name of the target, texts for notes, and the names of the classes.
  std::vector<std::string> Texts() const {
    std::vector<std::string> texts = {scheme_.target.name, WordsText(scheme_), TextsText(scheme_)};
    if (!scheme_.has_classes) return texts;
    texts.insert(texts.end(), scheme_.target.word_list.begin(), scheme_.target.word_list.end());
    return texts;
  }

  std::string Encoding() const {
    std::string words, names, scales, means;
    for (const Column& column : scheme_.inputs) {
      if (rules_.has_names) names += column.name + "\n";
      for (size_t i = 0; i < column.word_list.size(); ++i) {
        words += Str(i, " ", column.word_list[i], "\n");
      }
      if (column.has_words()) continue;
      if (rules_.normalise) {
        scales += Str(Rounded(column.mean), " ", Rounded(column.deviation), "\n");
      }
      means += Str(Rounded(column.mean), "\n");
    }
    const auto digest = [](const std::string& text) { return text.empty() ? "" : Digest(text); };
    const TableEncoding encoding = {
        words.empty() ? TableEncoding::kNone : Digest(words), digest(names),
        rules_.normalise ? digest(scales) : TableEncoding::kNone, digest(means), has_filled_};
    return encoding.ToText();
  }

  template <class T>
  void Add(T value) {
    cells_.push_back(std::bit_cast<int32_t>(value));
  }

  void AddInput(const Column& column, const CsvCell& cell, const CsvReader& row) {
    const bool is_missing = IsMissing(cell.text);
    if (is_missing && !rules_.fills) {
      throw WorldError(Str(PlaceOf(row, cell, column), " has no value; missing=\"mean\" takes the ",
                           "column's mean"));
    }
    if (column.has_words()) {
      const bool is_none =
          is_missing || (rules_.takes_unknown && !column.words_by_text.contains(cell.text));
      constexpr const char* kHelp = "; unknown=\"none\" takes it for no word";
      return Add(is_none ? -1 : WordOf(column, cell, row, kHelp));
    }
    has_filled_ = has_filled_ || is_missing;
    double number = is_missing ? column.mean : NumberOf(column, cell, row);
    if (rules_.normalise) number = (number - column.mean) / column.deviation;
    if (!FitsFloat(number)) throw WorldError(TooLarge(row, cell, column));
    Add(static_cast<float>(number));
  }

  void AddTarget(const CsvCell& cell, const CsvReader& row) {
    const Column& column = scheme_.target;
    if (IsMissing(cell.text)) {
      throw WorldError(Str(PlaceOf(row, cell, column), ", the target, has no value"));
    }
    if (column.has_words()) {
      const int32_t word = WordOf(column, cell, row);
      return scheme_.has_classes ? Add(word) : Add(static_cast<float>(word));
    }
    const double value = NumberOf(column, cell, row);
    if (!scheme_.has_classes) return Add(static_cast<float>(value));
    const auto classes = static_cast<double>(scheme_.classes());
    const bool is_class = value >= 0 && value < classes && value == std::floor(value);
    if (is_class) return Add(static_cast<int32_t>(value));
    throw WorldError(Str(PlaceOf(row, cell, column), ": expected a class from 0 to ",
                         scheme_.classes() - 1, ", got ", cell.text));
  }

  static double NumberOf(const Column& column, const CsvCell& cell, const CsvReader& row) {
    const std::optional<double> number = NumberIn(cell.text);
    if (number && !FitsFloat(*number)) throw WorldError(TooLarge(row, cell, column));
    if (number) return *number;
    throw WorldError(
        Str(PlaceOf(row, cell, column), ": expected a number, got \"", cell.text, "\""));
  }

  static int32_t WordOf(const Column& column, const CsvCell& cell, const CsvReader& row,
                        const char* help = "") {
    const auto found = column.words_by_text.find(cell.text);
    if (found != column.words_by_text.end()) return found->second;
    const std::string text(cell.text);
    throw WorldError(Str(PlaceOf(row, cell, column), ": the training has no \"", text, "\"",
                         DidYouMean(text, column.word_list), help));
  }

  const Scheme& scheme_;
  const Rules& rules_;
  std::vector<int32_t> cells_;  // of the row that is written
  bool has_filled_ = false;     // true if a mean took the place of a missing number
};

/// The rows that Conversion wrote.
class Csv : public Dataset {
 public:
  Csv(std::string path, bool has_targets, Prepared prepared)
      : path_(std::move(path)),
        has_targets_(has_targets),
        prepared_(std::move(prepared)),
        words_(prepared_.facts["words"].as_ints()),
        rows_(prepared_.facts["rows"].as_int()),
        classes_(prepared_.facts["classes"].as_int()),
        has_classes_(prepared_.facts["has_classes"].as_bool()) {
    for (const int64_t words : words_) width_ += std::max<int64_t>(words, 1);
    const auto rows_end = static_cast<size_t>(rows_) * row_bytes();
    ExpectRandomReadsIfLarge(prepared_.bytes.first(rows_end));
    const auto texts = prepared_.bytes.subspan(rows_end);
    std::string_view left(reinterpret_cast<const char*>(texts.data()), texts.size());
    while (!left.empty()) {
      const size_t end = left.find('\0');
      texts_.emplace_back(left.substr(0, end));
      left.remove_prefix(end + 1);
    }
  }
  int64_t size() const override { return rows_; }
  TensorSpec input() const override { return {{width_}, DType::kFloat32}; }
  TensorSpec target() const override {
    return has_classes_ ? TensorSpec{{}, DType::kInt64} : TensorSpec{{1}, DType::kFloat32};
  }
  int64_t classes() const override { return classes_; }
  std::vector<std::string> class_names() const override {
    return {texts_.begin() + kClassNames, texts_.end()};
  }
  std::string encoding() const override { return prepared_.facts["encoding"].as_string(); }
  std::vector<std::string> notes() const override {
    const std::string &words = texts_[kWordsText], &texts = texts_[kTextsText];
    if (words.empty()) return {};
    std::vector<std::string> notes = {
        Str("words of ", QuotedName(path_), " become a number of 0 or 1 each: ", words)};
    if (texts.empty()) return notes;
    notes.push_back(Str("nearly each row of ", QuotedName(path_), " has a word of its own in ",
                        texts, ": texts are read by strata.data.jsonl{text=, target=, length=}; ",
                        "columns={...} leaves columns out"));
    return notes;
  }
  bool has_targets() const override { return has_targets_; }
  std::string description() const override {
    return Str("csv: ", FormatCount(size()), " rows of ", path_, ", ",
               Plural(std::ssize(words_), "column"), " as ", Plural(width_, "number"),
               has_targets_ ? " -> " + texts_[kTargetName] : "",
               classes() > 0 ? Str(" (", Plural(classes(), "class"), ")") : "");
  }
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    const std::byte* row = prepared_.bytes.data() + static_cast<size_t>(sample.index) * row_bytes();
    if (input) CopyInputs(row, input);
    if (!target) return;
    const std::byte* cell = row + words_.size() * kCell;
    if (!has_classes_) {
      std::memcpy(target, cell, kCell);
      return;
    }
    const int64_t label = WordAt(cell);
    std::memcpy(target, &label, sizeof(label));
  }

 private:
  static constexpr size_t kCell = 4;
  static constexpr int kTargetName = 0, kWordsText = 1, kTextsText = 2, kClassNames = 3;

  size_t row_bytes() const { return (words_.size() + 1) * kCell; }
  static int32_t WordAt(const std::byte* cell) {
    int32_t word = 0;
    std::memcpy(&word, cell, kCell);
    return word;
  }
  void CopyInputs(const std::byte* cell, std::byte* to) const {
    for (const int64_t words : words_) {
      const size_t bytes = static_cast<size_t>(std::max<int64_t>(words, 1)) * sizeof(float);
      if (words == 0) {
        std::memcpy(to, cell, kCell);
      } else {
        std::memset(to, 0, bytes);
        constexpr float kOne = 1;
        const int32_t word = WordAt(cell);
        if (word >= 0)
          std::memcpy(to + static_cast<size_t>(word) * sizeof(kOne), &kOne, sizeof(kOne));
      }
      cell += kCell;
      to += bytes;
    }
  }

  const std::string path_;
  const bool has_targets_;
  const Prepared prepared_;
  const std::vector<int64_t> words_;  // the number of words of each input; 0 = it has numbers
  const int64_t rows_, classes_;
  const bool has_classes_;
  int64_t width_ = 0;
  std::vector<std::string> texts_;
};

char SeparatorOf(const Value& option, const std::string& path) {
  if (option.is_null()) return Lower(path).ends_with(".tsv") ? '\t' : ',';
  const std::string& separator = option.as_string();
  if (separator != "tab" && separator.size() != 1) {
    throw ConfigError(
        Str("strata.data.csv: separator is one character or \"tab\", got \"", separator, "\""));
  }
  return separator == "tab" ? '\t' : separator[0];
}

/// Reads the table, by the scheme of the table `like`, or by its own if that has no path.
Value WriteTable(const TableOptions& table, const TableOptions& like, const Value& options,
                 PreparedWriter& to) {
  const Rules rules(options);
  const Table rows(table);
  std::optional<Table> training;
  if (!like.path.empty()) training.emplace(like);
  const Table& first = training ? *training : rows;
  DataProgress progress(Reading(table.path), first.bytes() + rows.bytes());
  Scheme scheme = MakeScheme(first, options, training || rules.has_targets, progress);
  if (!rules.has_targets) {
    for (Column& column : scheme.inputs) column.place = ColumnOf(rows, column.name).place;
  } else if (first.names() != rows.names()) {
    throw WorldError(Str(rows.path(), ":1: expected the columns of ", first.path(), ": ",
                         Join(first.names(), ", "), "; got ", Join(rows.names(), ", ")));
  }
  return Conversion(scheme, rules).Write(rows, to, progress);
}

}  // namespace

std::unique_ptr<Dataset> OpenCsv(const DataSpec& spec, const DatasetContext& context) {
  const Value& options = spec.options;
  const auto table_of = [&](const Value& path) {
    TableOptions table = {ResolvePath(path.as_string(), context)};
    table.separator = SeparatorOf(options["separator"], table.path);
    if (!options["header"].is_null()) table.header = options["header"].as_bool();
    return table;
  };
  const TableOptions table = table_of(options["path"]);
  TableOptions like;
  PreparedKey key = {"csv, version 1", {table.path}};
  for (const char* name : {"target", "columns", "normalise", "task", "missing", "unknown", "header",
                           "separator", "targets"}) {
    key.what += Str(", ", options[name].ToLua());
  }
  if (!options["like"].is_null()) {
    like = table_of(options["like"]);
    key.files.push_back(like.path);
  }
  Prepared prepared =
      Prepare(key, [&](PreparedWriter& to) { return WriteTable(table, like, options, to); });
  return std::make_unique<Csv>(table.path, Rules(options).has_targets, std::move(prepared));
}

}  // namespace strata::data
