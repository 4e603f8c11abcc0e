#!/usr/bin/env python3
"""npm on a mounted disk: install of a real application, its type check, lint and build, the same tree as on the host."""
import os
import shutil

import harness

APP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures", "next_app")
# What records how, not what, was installed.
UNEQUAL = {b".package-lock.json", b".cache", b".next", b"next-env.d.ts", b"tsconfig.tsbuildinfo", b"tsconfig.json"}


class Npm(harness.ClusterTest):
    def npm(self, folder, *args, timeout=600):
        env = dict(self.cluster.env, NEXT_TELEMETRY_DISABLED="1", CI="1", npm_config_cache=self.cluster.path("npm-cache"),
                   npm_config_update_notifier="false", npm_config_audit="false", npm_config_fund="false")
        result = self.cluster.run(["npm", *args], cwd=folder, env=env, timeout=timeout)
        harness.log(f"npm {' '.join(args)}: {result.seconds:.1f} s")
        return result

    def test_application(self):
        mount = self.start()
        local, work = self.cluster.path("app"), os.path.join(mount.path, "app")
        shutil.copytree(APP, local)
        shutil.copytree(APP, work)
        self.npm(local, "ci", "--ignore-scripts")  # fills npm's cache as well, which lies on the host
        self.npm(work, "ci", "--ignore-scripts", "--prefer-offline")
        want = harness.tree_digest(local, times=False, skip=UNEQUAL)
        got = harness.tree_digest(work, times=False, skip=UNEQUAL)
        harness.compare_trees(self, want, got)
        modules = os.path.join(work, "node_modules")
        packages = sum("package.json" in names and os.path.basename(os.path.dirname(folder)).startswith(("node_modules", "@"))
                       for folder, _, names in os.walk(modules))
        self.assertGreaterEqual(packages, 300)
        self.assertGreaterEqual(len(got), 10000)
        self.npm(work, "run", "typecheck")
        self.npm(work, "run", "lint")
        self.npm(work, "run", "build")
        self.assertTrue(os.path.exists(os.path.join(work, ".next", "BUILD_ID")))
        before = harness.tree_digest(work)
        mount.unmount()
        mount.start()
        harness.compare_trees(self, before, harness.tree_digest(work))
        self.npm(work, "run", "typecheck")
        shutil.rmtree(work)
        self.assertEqual(os.listdir(mount.path), [])
        mount.unmount()


if __name__ == "__main__":
    harness.main(limit=840)
