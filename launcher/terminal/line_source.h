// LineSource: where the lines of a prompt come from, a keyboard or a pipe.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace strata::launcher {

/// What the user did.
struct Line {
  enum class Kind {
    kText,         ///< typed a line; `text` is without its newline
    kInterrupted,  ///< Ctrl-C: what was typed so far is forgotten
    kEnd,          ///< Ctrl-D, or the pipe's end
  };
  Kind kind = Kind::kEnd;
  std::string text;
};

class LineSource {
 public:
  virtual ~LineSource() = default;
  /// Waits for the next line, with `prompt` before it where somebody types.
  virtual Line Read(const std::string& prompt) = 0;
  /// What the next line continues, for completion and for the history, where an input of several
  /// lines is one entry; "" = it begins something.
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

/// Words that may stand at the end of a line; see lua::Completion.
struct Candidates {
  size_t start = 0;  ///< where the word begins that is to be replaced, never beyond the text
  std::vector<std::string> words;
};
using Completer = std::function<Candidates(std::string_view line)>;

/// Lines from a terminal, edited with libedit: history, Tab completes, the user's ~/.editrc holds.
/// SIGINT must have a handler that makes `wake` readable, so that no Ctrl-C is missed that comes
/// right behind the prompt.
class EditedLines : public LineSource {
 public:
  /// `history_path`: the file that keeps the history; "" = none. Its folder is made when needed; a
  /// history that cannot be kept is no error.
  /// `wake`: an eventfd that ends Read() with kInterrupted; -1 = none.
  EditedLines(std::string history_path, Completer completer, int wake = -1, FILE* in = stdin,
              FILE* out = stdout);
  ~EditedLines() override;

  Line Read(const std::string& prompt) override;
  void Continue(const std::string& before) override;

 private:
  struct Editor;
  std::unique_ptr<Editor> editor_;
};

/// $XDG_STATE_HOME/strata/history, else ~/.local/state/strata/history; "" where there is no home.
std::string HistoryPath();

/// The longest beginning that all words share.
std::string CommonPrefix(const std::vector<std::string>& words);

/// Words side by side, as many columns as `width` allows, filled downwards, each line with its
/// newline. Of more than 200 words the first ones stand, and how many more there are.
std::string Columns(std::vector<std::string> words, int width);

}  // namespace strata::launcher
