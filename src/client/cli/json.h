// JSON as far as the control socket, the state files and --json need it. Objects keep the order of their members.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/result.h"

namespace archil::cli {

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;

  Json() = default;  // null
  Json(bool v) : v_(v) {}                                // NOLINT: implicit on purpose, as all below
  Json(uint64_t v) : v_(v) {}                            // NOLINT
  Json(int v) : v_(static_cast<double>(v)) {}            // NOLINT
  Json(double v) : v_(v) {}                              // NOLINT
  Json(std::string v) : v_(std::move(v)) {}              // NOLINT
  Json(std::string_view v) : v_(std::string(v)) {}       // NOLINT
  Json(const char* v) : v_(std::string(v)) {}            // NOLINT
  Json(Array v) : v_(std::move(v)) {}                    // NOLINT
  Json(Object v) : v_(std::move(v)) {}                   // NOLINT

  // Members of an object. Set replaces or adds; on anything but an object it makes one.
  void Set(std::string_view name, Json value);
  const Json* Find(std::string_view name) const;  // null if absent or no object
  // Lenient readers: the fallback for what is absent or of another kind.
  std::string GetString(std::string_view name, std::string_view fallback = {}) const;
  uint64_t GetNumber(std::string_view name, uint64_t fallback = 0) const;
  double GetDouble(std::string_view name, double fallback = 0) const;
  bool GetBool(std::string_view name, bool fallback = false) const;

  const Array* array() const { return std::get_if<Array>(&v_); }
  const Object* object() const { return std::get_if<Object>(&v_); }
  const std::string* string() const { return std::get_if<std::string>(&v_); }
  uint64_t number() const;

  std::string Dump() const;        // one line
  std::string DumpPretty() const;  // indented, with a newline at the end

 private:
  void Write(std::string& out, int indent) const;
  std::variant<std::monostate, bool, uint64_t, double, std::string, Array, Object> v_;
};

// One value with nothing but white space after it. kInvalid on anything else, also on nesting deeper than 32.
Result<Json> ParseJson(std::string_view text);

}  // namespace archil::cli
