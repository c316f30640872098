#include "tessera/base/json/bounded_json.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/base/strings.h"

namespace tessera {
namespace {

// Walks over a text and tells how far the parser has come, which does not say it to who takes its values.
class CountedChar {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  CountedChar(const char* at, const char** furthest) : at_(at), furthest_(furthest) {}

  char operator*() const { return *at_; }
  CountedChar& operator++() {
    *furthest_ = ++at_;
    return *this;
  }
  CountedChar operator++(int) {
    const CountedChar before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountedChar& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  const char** furthest_;
};

// Takes the values that nlohmann's parser finds (its interface "SAX") and makes one of them. Its parser with a callback
// could count levels, too, but looks through a whole list after each object in it: a list of n objects takes n^2.
template <typename Json>
class BoundedValue {
 public:
  BoundedValue(std::string_view text, const JsonKind& kind) : text_(text), kind_(kind), furthest_(text.data()) {}

  // What is wrong; "" where value() is the text's.
  std::string parse() {
    if (std::ssize(text_) > kind_.max_bytes) {
      return fmt::format("it has {}, at most {} of a {} are read", format_bytes(std::ssize(text_)),
                         format_bytes(kind_.max_bytes), kind_.name);
    }
    const char* const end = text_.data() + text_.size();
    Json::sax_parse(CountedChar(text_.data(), &furthest_), CountedChar(end, &furthest_), this);
    return std::move(fault_);
  }
  Json& value() { return root_; }

  // As nlohmann's parser calls them; false ends it.
  bool null() { return take(nullptr); }
  bool boolean(bool value) { return take(value); }
  bool number_integer(typename Json::number_integer_t value) { return take(value); }
  bool number_unsigned(typename Json::number_unsigned_t value) { return take(value); }
  bool number_float(typename Json::number_float_t value, const typename Json::string_t& /*text*/) {
    return take(value);
  }
  bool string(typename Json::string_t& value) { return take(std::move(value)); }
  bool binary(typename Json::binary_t& value) { return take(std::move(value)); }  // no text has one
  bool start_object(size_t /*size*/) { return begin(Json::value_t::object); }
  bool start_array(size_t /*size*/) { return begin(Json::value_t::array); }
  bool end_object() { return end(); }
  bool end_array() { return end(); }
  bool key(typename Json::string_t& name) {
    if (num_left_out_ > 0) return true;
    if (kind_.refuses_repeated && open_.back()->contains(name)) {
      const std::string_view before = text_.substr(0, num_read());
      return refuse(fmt::format("the member \"{}\" occurs twice in one object, in line {}", shown(name),
                                1 + std::ranges::count(before, '\n')));
    }
    name_ = std::move(name);
    return true;
  }
  bool parse_error(size_t position, const std::string& /*token*/, const typename Json::exception& error) {
    // Else it is a number that is too large.
    constexpr int kSyntax = 101;
    return refuse("not JSON: " +
                  (error.id == kSyntax ? describe_json_error(text_, position) : plain_json_words(error.what())));
  }

 private:
  static std::string shown(std::string_view name) {
    constexpr size_t kMostBytes = 60;
    return printable(name.substr(0, kMostBytes)) + (name.size() > kMostBytes ? "..." : "");
  }
  size_t num_read() const { return static_cast<size_t>(furthest_ - text_.data()); }
  bool refuse(std::string fault) {
    fault_ = std::move(fault);
    return false;
  }
  Json& place(Json&& value) {
    if (open_.empty()) return root_ = std::move(value);
    Json& around = *open_.back();
    if (!around.is_array()) return around[name_] = std::move(value);
    around.push_back(std::move(value));
    return around.back();
  }
  bool take(Json value) {
    if (num_left_out_ == 0) place(std::move(value));
    return true;
  }
  bool begin(typename Json::value_t type) {
    if (num_left_out_ == 0 && std::ssize(open_) < kind_.max_levels) {
      open_.push_back(&place(Json(type)));
      return true;
    }
    ++num_left_out_;
    return kind_.leaves_out_deeper ||
           refuse(fmt::format("nested deeper than {}, as no {} is: {}", plural(kind_.max_levels, "level"), kind_.name,
                              describe_json_error(text_, num_read())));
  }
  bool end() {
    if (num_left_out_ > 0) {
      --num_left_out_;
    } else {
      open_.pop_back();
    }
    return true;
  }

  const std::string_view text_;
  const JsonKind& kind_;
  const char* furthest_;
  std::string fault_;
  Json root_;
  std::vector<Json*> open_;       // the lists and objects that have not ended, the innermost last
  typename Json::string_t name_;  // of the member that comes next
  int64_t num_left_out_ = 0;      // levels below the last one that is read
};

}  // namespace

template <typename Json>
Json parse_bounded_json(std::string_view text, std::string_view subject, const JsonKind& kind) {
  BoundedValue<Json> bounded(text, kind);
  const std::string fault = bounded.parse();
  if (!fault.empty()) throw InvalidArgument("{}{}{}", subject, subject.empty() ? "" : ": ", fault);
  return std::move(bounded.value());
}

template <typename Json>
Json parse_json_or_discard(std::string_view text, const JsonKind& kind) {
  BoundedValue<Json> bounded(text, kind);
  return bounded.parse().empty() ? std::move(bounded.value()) : Json(Json::value_t::discarded);
}

template nlohmann::json parse_bounded_json(std::string_view, std::string_view, const JsonKind&);
template nlohmann::ordered_json parse_bounded_json(std::string_view, std::string_view, const JsonKind&);
template nlohmann::json parse_json_or_discard(std::string_view, const JsonKind&);
template nlohmann::ordered_json parse_json_or_discard(std::string_view, const JsonKind&);

}  // namespace tessera
