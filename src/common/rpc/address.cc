#include "common/rpc/address.h"

#include <fmt/format.h>

#include <charconv>

namespace archil {
namespace {

bool IsHostByte(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' || c == '_';
}

bool IsIpv6Byte(char c) { return IsHostByte(c) || c == ':' || c == '%'; }

Error Bad(std::string_view text, std::string_view why) {
  return Error(Code::kInvalid, fmt::format("\"{}\" is not an address HOST:PORT: {}", text, why));
}

}  // namespace

std::string HostPort::ToString() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

Result<HostPort> ParseHostPort(std::string_view text) {
  HostPort out;
  std::string_view port;
  if (text.starts_with('[')) {
    const size_t close = text.find("]:");
    if (close == std::string_view::npos) return Bad(text, "an IPv6 address is written [ADDRESS]:PORT");
    out.host = text.substr(1, close - 1);
    port = text.substr(close + 2);
    for (char c : out.host) {
      if (!IsIpv6Byte(c)) return Bad(text, "bad character in the host");
    }
  } else {
    const size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) return Bad(text, "the port is missing");
    out.host = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (out.host.find(':') != std::string::npos) return Bad(text, "an IPv6 address is written [ADDRESS]:PORT");
    for (char c : out.host) {
      if (!IsHostByte(c)) return Bad(text, "bad character in the host");
    }
  }
  if (out.host.empty() || out.host.size() > 253) return Bad(text, "the host is missing or too long");
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (error != std::errc() || end != port.data() + port.size()) return Bad(text, "the port is a number from 0 to 65535");
  return out;
}

}  // namespace archil
