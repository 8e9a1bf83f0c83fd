// The data source "csv": rows of a table. The file is read twice. The first pass (MakeScheme)
// determines for each column whether it holds numbers or words, its words, its mean and its
// deviation; the second (class Csv) converts all cells to float32 with this scheme and keeps them
// in memory. A column of numbers becomes one number, a column of words a 0 or 1 per word. With the
// option `like` the first pass reads the file of the training instead, so that test data is
// converted in the same way. The cost is linear in the size of the file.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/tensor_name.h"
#include "engine/data/files/csv_file.h"
#include "engine/data/files/mapped_file.h"
#include "engine/data/sources.h"
#include "engine/job/table_encoding.h"

namespace strata::data {
namespace {

constexpr size_t kMostWords = 1000;

bool IsMissing(std::string_view text) {
  for (const char* word : {"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?"}) {
    if (text == word) return true;
  }
  return false;
}

/// The number that the text is, or none. A number that is too large for a double is infinite; the
/// text "inf" is not a number.
std::optional<double> NumberIn(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), number);
  if (end != text.end()) return std::nullopt;
  if (error == std::errc::result_out_of_range)
    return std::strtod(std::string(text).c_str(), nullptr);
  return error == std::errc() && std::isfinite(number) ? std::make_optional(number) : std::nullopt;
}

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
  bool is_whole = true;          // true if all numbers are whole and at least 0
  double most = 0;
  // Distinct words and numbers as they are written; at most kMostWords + 1.
  std::set<std::string> different;
  // Place and text of the first word and of the first number, for errors.
  std::string odd_word, odd_number;
  // The error for the first number that float32 cannot hold.
  std::string too_large;
  // The number of each word; filled by Settle().
  std::map<std::string, int64_t> index;

  bool has_words() const { return words > numbers; }
  /// True if the column probably holds free texts: there are many words, and on average fewer than
  /// two rows share one.
  bool has_texts() const {
    constexpr size_t kFew = 20;
    return has_words() && index.size() > kFew && 2 * std::ssize(index) > words;
  }
  double deviation() const {
    const double value = numbers > 0 ? std::sqrt(squares / static_cast<double>(numbers)) : 0;
    return value > 0 ? value : 1;
  }
  int64_t width() const { return has_words() ? static_cast<int64_t>(index.size()) : 1; }
};

struct TableOptions {
  std::string path;
  char separator = ',';
  std::optional<bool> header = {};  // none: the user does not say; names are expected

  bool has_header() const { return header.value_or(true); }
};

/// A CSV file with column names. ForEachRow() calls body(row, "PATH:LINE") for every row behind the
/// header, and checks that it has as many cells as the first line.
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

  template <class Body>
  void ForEachRow(const Body& body) const {
    CsvReader reader = Reader();
    std::vector<CsvCell> row;
    if (options_.has_header()) reader.Next(row);
    while (reader.Next(row)) {
      for (CsvCell& cell : row) cell.text = Trim(cell.text);
      if (row.size() != names_.size()) {
        throw WorldError(Str(reader.Where(), ": expected ", Plural(names_.size(), "cell"),
                             ", as in the first line, got ", row.size()));
      }
      body(row, reader.Where());
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

std::string PlaceOf(const std::string& row, const CsvCell& cell, const Column& column) {
  return Str(row, ":", cell.column, ": column \"", column.name, "\"");
}

std::string TooLarge(const std::string& row, const CsvCell& cell, const Column& column) {
  return Str(PlaceOf(row, cell, column), ": expected a number that float32 holds, got ", cell.text);
}

void Note(Column& column, const CsvCell& cell, const std::string& row) {
  if (IsMissing(cell.text)) {
    ++column.missing;
    return;
  }
  if (column.different.size() <= kMostWords) column.different.insert(cell.text);
  const std::optional<double> number = NumberIn(cell.text);
  std::string& odd = number ? column.odd_number : column.odd_word;
  if (odd.empty()) odd = Str(PlaceOf(row, cell, column), ": \"", cell.text, "\"");
  if (!number) {
    ++column.words;
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
    return;
  }
  if (column.different.size() > kMostWords) {
    throw WorldError(Str(path, ": column \"", column.name, "\" has more than ", kMostWords,
                         " different words; leave it out by columns={...}"));
  }
  for (const std::string& word : column.different) {
    column.index.emplace(word, static_cast<int64_t>(column.index.size()));
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
    return target.has_words() ? static_cast<int64_t>(target.index.size())
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

/// Determines the scheme of a file. The inputs are the option `columns`, or else all columns except
/// the target. If `has_target` is false, the file has no target, and a column with its name is left
/// out.
Scheme MakeScheme(const Table& table, const Value& options, bool has_target) {
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
  table.ForEachRow([&](const std::vector<CsvCell>& row, const std::string& where) {
    for (Column& column : scheme.inputs) Note(column, row[column.place], where);
    if (has_target) Note(scheme.target, row[scheme.target.place], where);
  });
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
                           [](const Column* column) { return column->index.size(); });
  constexpr size_t kShown = 5;
  std::vector<std::string> texts;
  for (size_t i = 0; i < std::min(kShown, columns.size()); ++i) {
    const auto& index = columns[i]->index;
    texts.push_back(Str(QuotedName(columns[i]->name), " (",
                        Plural(static_cast<int64_t>(index.size()), "word"), ", as ",
                        QuotedName(index.begin()->first), ")"));
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

class Csv : public Dataset {
 public:
  Csv(const Table& table, Scheme scheme, const Value& options)
      : scheme_(std::move(scheme)),
        has_targets_(options["targets"] != Value(false)),
        has_names_(options["header"] != Value(false)),
        normalise_(options["normalise"].as_bool()),
        fills_(options["missing"] == Value("mean")),
        takes_unknown_(options["unknown"] == Value("none")),
        path_(table.path()) {
    table.ForEachRow([&](const std::vector<CsvCell>& row, const std::string& where) {
      for (const Column& column : scheme_.inputs) Add(column, row[column.place], where);
      has_targets_ ? AddTarget(row[scheme_.target.place], where) : targets_.push_back(0);
    });
    if (targets_.empty()) throw WorldError(Str(path_, ": expected rows, got only a header"));
  }
  int64_t size() const override { return static_cast<int64_t>(targets_.size()); }
  TensorSpec input() const override { return {{scheme_.width}, DType::kFloat32}; }
  TensorSpec target() const override {
    return scheme_.has_classes ? TensorSpec{{}, DType::kInt64} : TensorSpec{{1}, DType::kFloat32};
  }
  int64_t classes() const override { return scheme_.classes(); }
  std::vector<std::string> class_names() const override {
    std::vector<std::string> names;
    if (scheme_.has_classes && scheme_.target.has_words()) {
      for (const auto& [word, index] : scheme_.target.index) names.push_back(word);
    }
    return names;
  }
  std::string encoding() const override {
    std::string words, names, scales, means;
    for (const Column& column : scheme_.inputs) {
      if (has_names_) names += column.name + "\n";
      for (const auto& [word, index] : column.index) words += Str(index, " ", word, "\n");
      if (column.has_words()) continue;
      if (normalise_) scales += Str(Rounded(column.mean), " ", Rounded(column.deviation()), "\n");
      means += Str(Rounded(column.mean), "\n");
    }
    const auto digest = [](const std::string& text) { return text.empty() ? "" : Digest(text); };
    const TableEncoding encoding = {
        words.empty() ? TableEncoding::kNone : Digest(words), digest(names),
        normalise_ ? digest(scales) : TableEncoding::kNone, digest(means), has_filled_};
    return encoding.ToText();
  }
  std::vector<std::string> notes() const override {
    const std::string words = WordsText(scheme_);
    if (words.empty()) return {};
    std::vector<std::string> notes = {
        Str("words of ", QuotedName(path_), " become a number of 0 or 1 each: ", words)};
    const std::string texts = TextsText(scheme_);
    if (texts.empty()) return notes;
    notes.push_back(Str("nearly each row of ", QuotedName(path_), " has a word of its own in ",
                        texts, ": texts are read by strata.data.jsonl{text=, target=, length=}; ",
                        "columns={...} leaves columns out"));
    return notes;
  }
  bool has_targets() const override { return has_targets_; }
  std::string description() const override {
    return Str("csv: ", FormatCount(size()), " rows of ", path_, ", ",
               Plural(static_cast<int64_t>(scheme_.inputs.size()), "column"), " as ",
               Plural(scheme_.width, "number"), has_targets_ ? " -> " + scheme_.target.name : "",
               classes() > 0 ? Str(" (", Plural(classes(), "class"), ")") : "");
  }
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    const auto index = static_cast<size_t>(sample.index);
    const auto width = static_cast<size_t>(scheme_.width);
    if (input) std::memcpy(input, values_.data() + index * width, width * sizeof(float));
    if (!target) return;
    if (scheme_.has_classes) {
      const auto label = static_cast<int64_t>(targets_[index]);
      std::memcpy(target, &label, sizeof(label));
    } else {
      const auto number = static_cast<float>(targets_[index]);
      std::memcpy(target, &number, sizeof(number));
    }
  }

 private:
  void Add(const Column& column, const CsvCell& cell, const std::string& row) {
    const bool is_missing = IsMissing(cell.text);
    if (is_missing && !fills_) {
      throw WorldError(Str(PlaceOf(row, cell, column), " has no value; missing=\"mean\" takes the ",
                           "column's mean"));
    }
    if (column.has_words()) {
      const size_t begin = values_.size();
      values_.resize(begin + column.index.size());
      const bool is_none = is_missing || (takes_unknown_ && !column.index.contains(cell.text));
      if (is_none) return;
      constexpr const char* kHelp = "; unknown=\"none\" takes it for no word";
      values_[begin + static_cast<size_t>(WordOf(column, cell, row, kHelp))] = 1;
      return;
    }
    has_filled_ = has_filled_ || is_missing;
    double number = is_missing ? column.mean : NumberOf(column, cell, row);
    if (normalise_) number = (number - column.mean) / column.deviation();
    if (!FitsFloat(number)) throw WorldError(TooLarge(row, cell, column));
    values_.push_back(static_cast<float>(number));
  }

  void AddTarget(const CsvCell& cell, const std::string& row) {
    const Column& column = scheme_.target;
    if (IsMissing(cell.text)) {
      throw WorldError(Str(PlaceOf(row, cell, column), ", the target, has no value"));
    }
    targets_.push_back(column.has_words() ? static_cast<double>(WordOf(column, cell, row))
                                          : NumberOf(column, cell, row));
    const double value = targets_.back();
    if (!scheme_.has_classes ||
        (value >= 0 && value < static_cast<double>(classes()) && value == std::floor(value))) {
      return;
    }
    throw WorldError(Str(PlaceOf(row, cell, column), ": expected a class from 0 to ", classes() - 1,
                         ", got ", cell.text));
  }

  static double NumberOf(const Column& column, const CsvCell& cell, const std::string& row) {
    const std::optional<double> number = NumberIn(cell.text);
    if (number && !FitsFloat(*number)) throw WorldError(TooLarge(row, cell, column));
    if (number) return *number;
    throw WorldError(
        Str(PlaceOf(row, cell, column), ": expected a number, got \"", cell.text, "\""));
  }

  static int64_t WordOf(const Column& column, const CsvCell& cell, const std::string& row,
                        const char* help = "") {
    const auto found = column.index.find(cell.text);
    if (found != column.index.end()) return found->second;
    std::vector<std::string> words;
    for (const auto& [word, index] : column.index) words.push_back(word);
    throw WorldError(Str(PlaceOf(row, cell, column), ": the training has no \"", cell.text, "\"",
                         DidYouMean(cell.text, words), help));
  }

  const Scheme scheme_;
  const bool has_targets_, has_names_, normalise_, fills_, takes_unknown_;
  const std::string path_;
  bool has_filled_ = false;  // true if a mean took the place of a missing number
  std::vector<float> values_;
  std::vector<double> targets_;
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

}  // namespace

std::unique_ptr<Dataset> OpenCsv(const DataSpec& spec, const DatasetContext& context) {
  const Value& options = spec.options;
  TableOptions table = {ResolvePath(options["path"].as_string(), context)};
  table.separator = SeparatorOf(options["separator"], table.path);
  if (!options["header"].is_null()) table.header = options["header"].as_bool();
  const Table rows(table);
  const bool has_targets = options["targets"] != Value(false);
  if (options["like"].is_null()) {
    return std::make_unique<Csv>(rows, MakeScheme(rows, options, has_targets), options);
  }
  table.path = ResolvePath(options["like"].as_string(), context);
  table.separator = SeparatorOf(options["separator"], table.path);
  const Table training(table);
  Scheme scheme = MakeScheme(training, options, true);
  if (!has_targets) {
    for (Column& column : scheme.inputs) column.place = ColumnOf(rows, column.name).place;
  } else if (training.names() != rows.names()) {
    throw WorldError(Str(rows.path(), ":1: expected the columns of ", training.path(), ": ",
                         Join(training.names(), ", "), "; got ", Join(rows.names(), ", ")));
  }
  return std::make_unique<Csv>(rows, std::move(scheme), options);
}

}  // namespace strata::data
