// LineSource: the source of a prompt's lines, which is a keyboard or a pipe.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace strata::launcher {

/// The result of reading a line.
struct Line {
  enum class Kind {
    kText,         ///< a line; `text` is without its newline
    kInterrupted,  ///< Ctrl-C; what was typed so far is dropped
    kEnd,          ///< Ctrl-D, or the pipe's end
  };
  Kind kind = Kind::kEnd;
  std::string text;
};

/// Gives the lines of a prompt, one at a time.
class LineSource {
 public:
  virtual ~LineSource() = default;
  /// Waits for the next line. On a terminal it shows `prompt`.
  virtual Line Read(const std::string& prompt) = 0;
  /// Sets the earlier lines of the input that the next line continues; "" = the next line begins a
  /// new input. Completion needs them, and the history keeps all lines of an input as one entry.
  virtual void Continue(const std::string&) {}
};

/// Lines from a file or a pipe: no prompt, no echo.
class PipedLines : public LineSource {
 public:
  explicit PipedLines(FILE* in = stdin) : in_(in) {}
  Line Read(const std::string& prompt) override;

 private:
  FILE* in_;
};

/// Completions of the last word of a line; see lua::Completion.
struct Candidates {
  size_t start = 0;  ///< where the word to be replaced begins; at most the line's length
  std::vector<std::string> words;
};
using Completer = std::function<Candidates(std::string_view line)>;

/// Lines from a terminal, edited with libedit: with a history, Tab completion, and the user's
/// ~/.editrc. SIGINT must have a handler that makes `wake` readable, so that a Ctrl-C right after
/// the prompt is not missed.
class EditedLines : public LineSource {
 public:
  /// `history_path` is the history's file; "" = none. Its folder is made if needed. Errors while
  /// writing the history are ignored. `wake` is an eventfd; when it is readable, Read() returns
  /// kInterrupted. -1 = none.
  EditedLines(std::string history_path, Completer completer, int wake = -1, FILE* in = stdin,
              FILE* out = stdout);
  ~EditedLines() override;

  Line Read(const std::string& prompt) override;
  void Continue(const std::string& before) override;

 private:
  struct Editor;
  std::unique_ptr<Editor> editor_;
};

/// $XDG_STATE_HOME/strata/history, else ~/.local/state/strata/history; "" without a home folder.
std::string HistoryPath();

/// The longest common prefix of the words.
std::string CommonPrefix(const std::vector<std::string>& words);

/// The words in columns, for a terminal of `width` characters. Columns are filled downwards; each
/// line ends in a newline. Of more than 200 words the first 200 are shown, with the number of the
/// rest.
std::string Columns(std::vector<std::string> words, int width);

}  // namespace strata::launcher
