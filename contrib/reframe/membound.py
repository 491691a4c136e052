"""ReFrame checks of a node's memory: is it as fast as it was, and what does STREAM say?

    membound check  --record node.jsonl      # once, while the node is healthy
    membound stream --record stream.jsonl
    reframe -c contrib/reframe/membound.py -r --exec-policy=serial \\
        -S membound_check.baseline=$PWD/node.jsonl -S membound_stream.baseline=$PWD/stream.jsonl

References come from the baselines, so the file holds no figure. Both run on the node alone and use all of its cores; what ReFrame runs
without a scheduler is alone with `--exec-policy=serial` only.
"""

import json
import subprocess

import reframe as rfm
import reframe.utility.sanity as sn

KERNELS = ('copy', 'scale', 'add', 'triad')


def best_rates(rows):
    """The best rate of each of STREAM's kernels by all threads, in GB/s, whichever store won."""
    measured = [row for row in rows if row['metric'] == 'bandwidth' and row['payload_Bps']]
    most = max((row['threads'] for row in measured), default=0)
    rates = {}
    for row in measured:
        if row['kernel'] in KERNELS and row['threads'] == most:
            rate = row['payload_Bps']['best'] / 1e9
            rates[row['kernel']] = max(rate, rates.get(row['kernel'], 0.0))
    return rates


class MemboundTest(rfm.RunOnlyRegressionTest):
    valid_systems = ['*']
    valid_prog_environs = ['*']
    exclusive_access = True
    program = variable(str, value='membound')
    baseline = variable(str, value='')


@rfm.simple_test
class membound_check(MemboundTest):
    """Fails where `membound check` finds the node degraded (1) or unable to be judged (2)."""

    descr = 'Is the memory of this node as fast as it was?'
    budget = variable(str, value='15s')

    @run_after('init')
    def command(self):
        self.executable = self.program
        self.executable_opts = ['check', '--budget', self.budget]

    @run_before('run')
    def against(self):
        self.skip_if(not self.baseline, 'no baseline: -S baseline=RECORD')
        self.executable_opts += ['--baseline', self.baseline]

    @sanity_function
    def is_healthy(self):
        return sn.assert_eq(self.job.exitcode, 0, msg='membound check ended with {0}: see its output')


@rfm.simple_test
class membound_stream(MemboundTest):
    """STREAM's four kernels; each may fall short of its baseline by `tolerance`."""

    descr = 'STREAM against its baseline'
    tolerance = variable(float, value=0.05)

    @run_after('init')
    def command(self):
        self.executable = self.program
        self.executable_opts = ['stream', '--quiet', '--format', 'json']

    @run_before('performance')
    def references(self):
        if not self.baseline:
            return
        told = subprocess.run([self.program, 'report', self.baseline, '--format', 'json'],
                              check=True, capture_output=True, text=True)
        rates = best_rates(json.loads(told.stdout))
        self.reference = {'*': {kernel: (rate, -self.tolerance, None, 'GB/s') for kernel, rate in rates.items()}}

    @sanity_function
    def has_all_kernels(self):
        return sn.assert_eq(sn.sorted(sn.defer(list(self.rates()))), sorted(KERNELS))

    @run_before('performance')
    def figures(self):
        make = sn.make_performance_function
        self.perf_variables = {kernel: make(sn.defer(rate), 'GB/s') for kernel, rate in self.rates().items()}

    def rates(self):
        with open(f'{self.stagedir}/{self.stdout.evaluate()}') as rows:
            return best_rates(json.load(rows))
