// archil recover-file: shows what a file of lost operations holds, and replays it below a directory. Asks no server and
// no daemon.
#include <fmt/format.h>

#include <algorithm>

#include "absl/time/time.h"
#include "client/cli/args.h"
#include "client/cli/commands.h"
#include "client/cli/exit_codes.h"
#include "client/cli/json.h"
#include "client/recovery/describe.h"
#include "client/recovery/lost_log.h"
#include "client/recovery/path_names.h"
#include "client/recovery/replay.h"

namespace archil::cli {
namespace {

constexpr std::string_view kUsage = "archil recover-file FILE [--replay DIR [--overwrite]] [--json]";

std::string WhenText(const LostLog& log) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", FromTimestamp(log.when), absl::UTCTimeZone());
}

std::string BytesText(uint64_t bytes, uint64_t unreadable) {
  std::string text = fmt::format("{} bytes written", bytes);
  if (unreadable != 0)
    text += fmt::format(", {} of them could not be read any more when the file was saved", unreadable);
  return text;
}

void PrintHead(const LostLog& log, const Listing& listing) {
  auto line = [](std::string_view name, const std::string& value) { fmt::print("{:<11} {}\n", name, value); };
  line("disk", fmt::format("{}, branch {}", Printable(log.disk), Printable(log.branch)));
  if (log.root != kRootInode) {
    line("mounted", fmt::format("a directory of it (inode {}): paths are from there", log.root.value));
  }
  line("client", fmt::format("{}, session {}", Printable(log.client_name), log.session.value));
  line("when", WhenText(log));
  line("reason", Printable(log.reason));
  line("operations", fmt::format("{}, {}", log.ops.size(), BytesText(listing.bytes, listing.unreadable)));
  fmt::print("\n");
}

void PrintLosses(const Listing& listing) {
  fmt::print("\n{} files and directories lost something:\n", listing.losses.size());
  for (const Loss& loss : listing.losses) {
    const std::string_view created = loss.created ? " (the disk has nothing of it)" : "";
    fmt::print("  {:<9} {}{}: {} operations", loss.directory ? "directory" : "file", loss.path, created, loss.ops);
    if (loss.bytes != 0) fmt::print(", {}", BytesText(loss.bytes, loss.unreadable));
    fmt::print("\n");
  }
}

Json LineJson(const OpLine& line) {
  Json j;
  j.Set("op", line.verb);
  j.Set("inode", line.ino.value);
  j.Set("path", line.path);
  if (!line.new_path.empty()) j.Set("new_path", line.new_path);
  if (line.bytes != 0) j.Set("bytes", line.bytes);
  if (line.unreadable != 0) j.Set("unreadable_bytes", line.unreadable);
  j.Set("text", line.Text());
  return j;
}

Json LossJson(const Loss& loss) {
  Json j;
  j.Set("path", loss.path);
  j.Set("inode", loss.ino.value);
  j.Set("directory", loss.directory);
  j.Set("created", loss.created);
  j.Set("operations", loss.ops);
  j.Set("bytes", loss.bytes);
  j.Set("unreadable_bytes", loss.unreadable);
  return j;
}

// `report` may be null: only shown.
Json WholeJson(const LostLog& log, const Listing& listing, const ReplayReport* report) {
  Json j;
  j.Set("disk", Printable(log.disk));
  j.Set("branch", Printable(log.branch));
  j.Set("client", Printable(log.client_name));
  j.Set("session", log.session.value);
  j.Set("when", WhenText(log));
  j.Set("reason", Printable(log.reason));
  j.Set("root_inode", log.root.value);
  j.Set("damaged", log.damaged);
  j.Set("bytes", listing.bytes);
  j.Set("unreadable_bytes", listing.unreadable);
  Json::Array ops, losses, failures;
  for (size_t i = 0; i < listing.lines.size(); i++) {
    Json line = LineJson(listing.lines[i]);
    if (report != nullptr) {
      line.Set("outcome", OutcomeName(report->ops[i].outcome));
      line.Set("detail", report->ops[i].detail);
    }
    ops.push_back(std::move(line));
  }
  for (const Loss& loss : listing.losses) losses.push_back(LossJson(loss));
  j.Set("operations", std::move(ops));
  j.Set("lost", std::move(losses));
  if (report == nullptr) return j;
  for (const std::string& failure : report->at_the_end) failures.emplace_back(failure);
  j.Set("failures", std::move(failures));
  j.Set("complete", report->Complete() && log.damaged.empty());
  return j;
}

void PrintReport(const Listing& listing, const ReplayReport& report) {
  for (size_t i = 0; i < listing.lines.size(); i++) {
    const OpOutcome& op = report.ops[i];
    fmt::print("{:<8} {}{}{}\n", OutcomeName(op.outcome), listing.lines[i].Text(), op.detail.empty() ? "" : ": ",
               op.detail);
  }
  for (const std::string& failure : report.at_the_end) fmt::print("{:<8} {}\n", "failed", failure);
  const auto count = [&report](Outcome outcome) {
    return std::count_if(report.ops.begin(), report.ops.end(),
                         [outcome](const OpOutcome& op) { return op.outcome == outcome; });
  };
  fmt::print("\n{} done, {} with nothing to do, {} put beside what was there, {} skipped\n", count(Outcome::kDone),
             count(Outcome::kNothing), count(Outcome::kBeside), count(Outcome::kSkipped));
}

}  // namespace

int RecoverFileCommand(const Argv& argv) {
  const Result<Args> args = Args::Parse(argv, {{"replay"}, {"overwrite", false}, {"json", false}}, 1, 1);
  if (!args.ok()) return Refuse(kExitUsage, args.error().message(), kUsage);
  const bool replay = args->Has("replay");
  if (args->Has("overwrite") && !replay) return Refuse(kExitUsage, "--overwrite goes with --replay", kUsage);
  const Result<LostLog> log = LoadLostLog(args->rest()[0]);
  if (!log.ok()) return Refuse(kExitUsage, log.error().message());
  const Listing listing = Describe(*log);
  ReplayReport report;
  if (replay) {
    const std::string dir = args->Get("replay");
    Result<ReplayReport> done = Replay(*log, dir, args->Has("overwrite") ? ReplayMode::kOverwrite : ReplayMode::kKeep);
    if (!done.ok())
      return Refuse(kExitUsage, done.error().message(), "--replay names a directory, such as a mount of the disk");
    report = std::move(*done);
  }
  if (args->Has("json")) {
    fmt::print("{}", WholeJson(*log, listing, replay ? &report : nullptr).DumpPretty());
  } else {
    PrintHead(*log, listing);
    if (replay) {
      PrintReport(listing, report);
    } else {
      for (const OpLine& line : listing.lines) fmt::print("{}\n", line.Text());
      PrintLosses(listing);
    }
  }
  fflush(stdout);
  if (!log->damaged.empty()) return Refuse(kExitFailure, fmt::format("the file is damaged: {}", log->damaged));
  return report.Complete() ? kExitOk : kExitFailure;
}

}  // namespace archil::cli
