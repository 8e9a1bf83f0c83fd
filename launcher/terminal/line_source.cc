// Lines from a pipe, and lines edited with libedit.
#include "launcher/terminal/line_source.h"

#include <histedit.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdint>
#include <cstdlib>
#include <cwchar>
#include <filesystem>
#include <system_error>

#include "launcher/terminal/terminal.h"

namespace strata::launcher {
namespace {

constexpr int kHistorySize = 2000;

void MakeFolderOf(const std::string& path) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
}

std::string WithoutNewline(std::string line) {
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  return line;
}

}  // namespace

Line PipedLines::Read(const std::string&) {
  char* buffer = nullptr;
  size_t capacity = 0;
  const ssize_t length = ::getline(&buffer, &capacity, in_);
  Line line;
  if (length >= 0) {
    line = {Line::Kind::kText, WithoutNewline({buffer, static_cast<size_t>(length)})};
  }
  std::free(buffer);
  return line;
}

/// The state of libedit. libedit's callbacks get an EditLine*, whose EL_CLIENTDATA is this object.
struct EditedLines::Editor {
  EditLine* edit = nullptr;
  History* history = nullptr;
  std::string history_path;
  Completer completer;
  std::string prompt;
  std::string before;  // the earlier lines of the current input, each with its newline
  std::string entry;   // the history's entry of the current input
  const int wake;
  const int in;
  FILE* out;

  Editor(std::string path, Completer complete, int wake, FILE* in, FILE* out)
      : history_path(std::move(path)),
        completer(std::move(complete)),
        wake(wake),
        in(::fileno(in)),
        out(out) {
    std::setlocale(LC_CTYPE, "");  // for characters beyond ASCII
    edit = ::el_init("strata", in, out, stderr);
    ::el_set(edit, EL_CLIENTDATA, this);
    ::el_set(edit, EL_PROMPT, &Editor::Prompt);
    ::el_set(edit, EL_GETCFN, &Editor::GetCharacter);
    ::el_set(edit, EL_EDITOR, "emacs");
    ::el_set(edit, EL_ADDFN, "strata-complete", "complete a name", &Editor::OnTab);
    ::el_set(edit, EL_BIND, "^I", "strata-complete", nullptr);
    ::el_set(edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    ::el_source(edit, nullptr);
    InitHistory();
  }

  ~Editor() {
    ::history_end(history);
    ::el_end(edit);
  }

  static Editor& Of(EditLine* edit) {
    void* self = nullptr;
    ::el_get(edit, EL_CLIENTDATA, &self);
    return *static_cast<Editor*>(self);
  }

  /// Resets `wake`. An earlier interrupt was for Lua code that ran, not for the next line.
  void Rest() const {
    uint64_t count;
    if (wake >= 0) [[maybe_unused]]
      const ssize_t got = ::read(wake, &count, sizeof(count));
  }

  /// The next typed character; -1 with EINTR for an interrupt. It polls `wake`, since a signal that
  /// comes between the prompt and the read would not interrupt the read.
  static int GetCharacter(EditLine* edit, wchar_t* character) {
    const Editor& self = Of(edit);
    std::mbstate_t state = {};
    while (true) {
      pollfd ready[] = {{self.wake, POLLIN, 0}, {self.in, POLLIN, 0}};
      if (::poll(ready, 2, -1) < 0) {
        if (errno == EINTR && self.wake >= 0) continue;  // a Ctrl-C makes `wake` readable
        return -1;
      }
      if (ready[0].revents != 0) {
        self.Rest();
        errno = EINTR;
        return -1;
      }
      char byte;
      const ssize_t got = ::read(self.in, &byte, 1);
      if (got <= 0) return static_cast<int>(got);
      const size_t length = std::mbrtowc(character, &byte, 1, &state);
      if (length == static_cast<size_t>(-2)) continue;  // the character has more bytes
      if (length == static_cast<size_t>(-1)) *character = static_cast<unsigned char>(byte);
      return 1;
    }
  }

  static char* Prompt(EditLine* edit) { return Of(edit).prompt.data(); }
  static unsigned char OnTab(EditLine* edit, int) { return Of(edit).Complete(); }

  void InitHistory() {
    HistEvent event;
    history = ::history_init();
    ::history(history, &event, H_SETSIZE, kHistorySize);
    ::history(history, &event, H_SETUNIQUE, 1);
    ::el_set(edit, EL_HIST, ::history, history);
    if (history_path.empty()) return;
    MakeFolderOf(history_path);
    ::history(history, &event, H_LOAD, history_path.c_str());
  }

  /// Adds a line to the history and saves it at once, since the program may end in any way. If the
  /// line continues an input, the input's entry is replaced by the longer one.
  void Remember(const std::string& line) {
    HistEvent event;
    if (before.empty()) {
      entry.clear();
    } else if (!entry.empty() && ::history(history, &event, H_FIRST) == 0 && entry == event.str) {
      ::history(history, &event, H_DEL, event.num);
    }
    entry += (entry.empty() ? "" : "\n") + line;
    if (entry.find_first_not_of(" \t\n") == std::string::npos) return;
    ::history(history, &event, H_ENTER, entry.c_str());
    if (!history_path.empty()) ::history(history, &event, H_SAVE, history_path.c_str());
  }

  unsigned char Complete() {
    const LineInfo* info = ::el_line(edit);
    const std::string text =
        before + std::string(info->buffer, static_cast<size_t>(info->cursor - info->buffer));
    const Candidates candidates = completer(text);
    if (candidates.words.empty() || candidates.start < before.size()) return CC_REFRESH_BEEP;
    const std::string typed = text.substr(candidates.start);
    const std::string common = CommonPrefix(candidates.words);
    if (common.size() > typed.size()) {
      ::el_deletestr(edit, static_cast<int>(typed.size()));
      ::el_insertstr(edit, common.c_str());
      return CC_REFRESH;
    }
    if (candidates.words.size() == 1) return CC_NORM;
    std::fprintf(out, "\n%s", Columns(candidates.words, ColumnsOf(::fileno(out))).c_str());
    return CC_REDISPLAY;
  }
};

EditedLines::EditedLines(std::string history_path, Completer completer, int wake, FILE* in,
                         FILE* out)
    : editor_(
          std::make_unique<Editor>(std::move(history_path), std::move(completer), wake, in, out)) {}

EditedLines::~EditedLines() = default;

void EditedLines::Continue(const std::string& before) {
  editor_->before = before.empty() ? "" : before + "\n";
}

Line EditedLines::Read(const std::string& prompt) {
  editor_->prompt = prompt;
  editor_->Rest();
  // Sets the terminal's mode before the prompt is shown. libedit does it afterwards, so a key that
  // is typed at once would meet the wrong mode.
  ::el_set(editor_->edit, EL_PREP_TERM, 1);
  int length = 0;
  errno = 0;
  const char* typed = ::el_gets(editor_->edit, &length);
  const bool interrupted = typed == nullptr && errno == EINTR;
  if (typed == nullptr || length <= 0) {
    std::fprintf(editor_->out, interrupted ? "^C\n" : "\n");
    std::fflush(editor_->out);
    return {interrupted ? Line::Kind::kInterrupted : Line::Kind::kEnd, ""};
  }
  Line line = {Line::Kind::kText, WithoutNewline(typed)};
  editor_->Remember(line.text);
  return line;
}

std::string HistoryPath() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state == '/') return std::string(state) + "/strata/history";
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return std::string(home) + "/.local/state/strata/history";
  return "";
}

std::string CommonPrefix(const std::vector<std::string>& words) {
  std::string common = words.empty() ? "" : words.front();
  for (const std::string& word : words) {
    const auto end = std::mismatch(common.begin(), common.end(), word.begin(), word.end()).first;
    common.erase(end, common.end());
  }
  return common;
}

std::string Columns(std::vector<std::string> words, int width) {
  constexpr size_t kMost = 200;
  const size_t more = words.size() > kMost ? words.size() - kMost : 0;
  words.resize(words.size() - more);
  size_t widest = 0;
  for (const std::string& word : words) widest = std::max(widest, word.size());
  const size_t columns = std::max<size_t>(1, static_cast<size_t>(width) / (widest + 2));
  const size_t rows = (words.size() + columns - 1) / columns;
  std::string text;
  for (size_t row = 0; row < rows; ++row) {
    for (size_t i = row; i < words.size(); i += rows) {
      text += words[i];
      if (i + rows < words.size()) text.append(widest + 2 - words[i].size(), ' ');
    }
    text += '\n';
  }
  if (more > 0) text += "... and " + std::to_string(more) + " more\n";
  return text;
}

}  // namespace strata::launcher
