#include "client/cli/json.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace archil::cli {
namespace {

constexpr int kMaxDepth = 32;

void WriteString(std::string& out, std::string_view s) {
  out.push_back('"');
  for (const char c : s) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\t': out += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
        } else {
          out.push_back(c);
        }
    }
  }
  out.push_back('"');
}

void AppendUtf8(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out.push_back(static_cast<char>(0xc0 | (c >> 6)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3f)));
  } else {
    out.push_back(static_cast<char>(0xe0 | (c >> 12)));
    out.push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3f)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3f)));
  }
}

class Parser {
 public:
  explicit Parser(std::string_view in) : in_(in) {}

  Result<Json> Whole() {
    ARCHIL_ASSIGN_OR_RETURN(Json value, Value(0));
    Space();
    if (!in_.empty()) return Bad();
    return value;
  }

 private:
  static Error Bad() { return Error(Code::kInvalid, "not JSON"); }
  void Space() {
    while (!in_.empty() && (in_[0] == ' ' || in_[0] == '\t' || in_[0] == '\n' || in_[0] == '\r')) in_.remove_prefix(1);
  }
  bool Eat(std::string_view token) {
    if (in_.substr(0, token.size()) != token) return false;
    in_.remove_prefix(token.size());
    return true;
  }

  Result<Json> Value(int depth) {
    Space();
    if (depth > kMaxDepth || in_.empty()) return Bad();
    if (Eat("null")) return Json();
    if (Eat("true")) return Json(true);
    if (Eat("false")) return Json(false);
    if (in_[0] == '"') {
      ARCHIL_ASSIGN_OR_RETURN(std::string s, String());
      return Json(std::move(s));
    }
    if (Eat("[")) return ArrayBody(depth);
    if (Eat("{")) return ObjectBody(depth);
    return Number();
  }

  Result<Json> Number() {
    const char* const end = in_.data() + in_.size();
    uint64_t whole = 0;
    double real = 0;
    const auto w = std::from_chars(in_.data(), end, whole);
    const auto r = std::from_chars(in_.data(), end, real);
    if (r.ec != std::errc()) return Bad();
    in_.remove_prefix(r.ptr - in_.data());
    if (w.ec == std::errc() && w.ptr == r.ptr) return Json(whole);
    return Json(real);
  }

  Result<std::string> String() {
    std::string out;
    in_.remove_prefix(1);
    while (!in_.empty() && in_[0] != '"') {
      char c = in_[0];
      in_.remove_prefix(1);
      if (c != '\\') {
        out.push_back(c);
        continue;
      }
      if (in_.empty()) return Bad();
      c = in_[0];
      in_.remove_prefix(1);
      switch (c) {
        case 'n': out.push_back('\n'); break;
        case 't': out.push_back('\t'); break;
        case 'r': out.push_back('\r'); break;
        case 'b': out.push_back('\b'); break;
        case 'f': out.push_back('\f'); break;
        case 'u': {
          uint32_t code = 0;
          if (in_.size() < 4) return Bad();
          const auto hex = std::from_chars(in_.data(), in_.data() + 4, code, 16);
          if (hex.ptr != in_.data() + 4) return Bad();
          in_.remove_prefix(4);
          AppendUtf8(out, code);
          break;
        }
        default: out.push_back(c);  // '"', '\\', '/'
      }
    }
    if (!Eat("\"")) return Bad();
    return out;
  }

  Result<Json> ArrayBody(int depth) {
    Json::Array items;
    Space();
    if (Eat("]")) return Json(std::move(items));
    for (;;) {
      ARCHIL_ASSIGN_OR_RETURN(Json item, Value(depth + 1));
      items.push_back(std::move(item));
      Space();
      if (Eat("]")) return Json(std::move(items));
      if (!Eat(",")) return Bad();
    }
  }

  Result<Json> ObjectBody(int depth) {
    Json::Object members;
    Space();
    if (Eat("}")) return Json(std::move(members));
    for (;;) {
      Space();
      if (in_.empty() || in_[0] != '"') return Bad();
      ARCHIL_ASSIGN_OR_RETURN(std::string name, String());
      Space();
      if (!Eat(":")) return Bad();
      ARCHIL_ASSIGN_OR_RETURN(Json value, Value(depth + 1));
      members.emplace_back(std::move(name), std::move(value));
      Space();
      if (Eat("}")) return Json(std::move(members));
      if (!Eat(",")) return Bad();
    }
  }

  std::string_view in_;
};

}  // namespace

void Json::Set(std::string_view name, Json value) {
  if (object() == nullptr) v_ = Object();
  Object& members = std::get<Object>(v_);
  for (auto& [n, v] : members) {
    if (n == name) {
      v = std::move(value);
      return;
    }
  }
  members.emplace_back(std::string(name), std::move(value));
}

const Json* Json::Find(std::string_view name) const {
  const Object* members = object();
  if (members == nullptr) return nullptr;
  for (const auto& [n, v] : *members) {
    if (n == name) return &v;
  }
  return nullptr;
}

std::string Json::GetString(std::string_view name, std::string_view fallback) const {
  const Json* v = Find(name);
  return v != nullptr && v->string() != nullptr ? *v->string() : std::string(fallback);
}

uint64_t Json::number() const {
  if (const auto* u = std::get_if<uint64_t>(&v_)) return *u;
  if (const auto* d = std::get_if<double>(&v_)) return *d > 0 && *d < 1.8e19 ? static_cast<uint64_t>(*d) : 0;
  return 0;
}

uint64_t Json::GetNumber(std::string_view name, uint64_t fallback) const {
  const Json* v = Find(name);
  return v != nullptr ? v->number() : fallback;
}

double Json::GetDouble(std::string_view name, double fallback) const {
  const Json* v = Find(name);
  if (v == nullptr) return fallback;
  if (const auto* d = std::get_if<double>(&v->v_)) return *d;
  return static_cast<double>(v->number());
}

bool Json::GetBool(std::string_view name, bool fallback) const {
  const Json* v = Find(name);
  const bool* b = v == nullptr ? nullptr : std::get_if<bool>(&v->v_);
  return b != nullptr ? *b : fallback;
}

// indent < 0: one line.
void Json::Write(std::string& out, int indent) const {
  const bool pretty = indent >= 0;
  const int inner = pretty ? indent + 2 : -1;
  auto line = [&](int depth) {
    if (pretty) out.append("\n").append(depth, ' ');
  };
  if (const auto* b = std::get_if<bool>(&v_)) {
    out += *b ? "true" : "false";
  } else if (const auto* u = std::get_if<uint64_t>(&v_)) {
    out += fmt::format("{}", *u);
  } else if (const auto* d = std::get_if<double>(&v_)) {
    out += std::isfinite(*d) ? fmt::format("{}", *d) : "null";
  } else if (const auto* s = std::get_if<std::string>(&v_)) {
    WriteString(out, *s);
  } else if (const auto* items = std::get_if<Array>(&v_)) {
    out.push_back('[');
    for (size_t i = 0; i < items->size(); ++i) {
      if (i != 0) out.push_back(',');
      line(inner);
      (*items)[i].Write(out, inner);
    }
    if (!items->empty()) line(indent);
    out.push_back(']');
  } else if (const auto* members = std::get_if<Object>(&v_)) {
    out.push_back('{');
    for (size_t i = 0; i < members->size(); ++i) {
      if (i != 0) out.push_back(',');
      line(inner);
      WriteString(out, (*members)[i].first);
      out += pretty ? ": " : ":";
      (*members)[i].second.Write(out, inner);
    }
    if (!members->empty()) line(indent);
    out.push_back('}');
  } else {
    out += "null";
  }
}

std::string Json::Dump() const {
  std::string out;
  Write(out, -1);
  return out;
}

std::string Json::DumpPretty() const {
  std::string out;
  Write(out, 0);
  out.push_back('\n');
  return out;
}

Result<Json> ParseJson(std::string_view text) { return Parser(text).Whole(); }

}  // namespace archil::cli
