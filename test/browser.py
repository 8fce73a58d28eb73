"""A real browser for tests of pages: Chromium over the DevTools protocol, through a pipe.

Found are `chromium` and `google-chrome` on the PATH, or what WAMDIFF_BROWSER names. A page is
loaded without a server; what it asks the network for and what its console says is kept.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress

NAMES = ('chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable')
TIMEOUT_S = 120.0  # a machine may be busy


def find_browser():
    """Return the path of a browser, None where there is none."""
    named = os.environ.get('WAMDIFF_BROWSER')
    return named or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page at a time, as a context manager."""

    def __init__(self, path):
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        arguments = [
            path, '--headless=new', '--remote-debugging-pipe', '--disable-gpu', '--no-first-run',
            '--disable-background-networking', '--disable-dev-shm-usage', '--no-sandbox',
            f'--user-data-dir={self._profile.name}',
        ]  # fmt: skip

        def connect():  # the browser reads 3 and writes 4
            read, write = os.dup(to_browser), os.dup(from_browser)
            os.dup2(read, 3)
            os.dup2(write, 4)

        self._process = subprocess.Popen(
            arguments, preexec_fn=connect, pass_fds=(3, 4),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._buffer, self._number, self.events = b'', 0, []
        self._session = None
        target = self.ask('Target.createTarget', url='about:blank')['targetId']
        session = self.ask('Target.attachToTarget', targetId=target, flatten=True)
        self._session = session['sessionId']
        for domain in ('Page', 'Runtime', 'Log', 'Network'):
            self.ask(f'{domain}.enable')

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._session = None
        with suppress(OSError, TimeoutError, EOFError):
            self.ask('Browser.close')
        self._process.wait(TIMEOUT_S)
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    def load(self, path, width, height=800):
        """Load a file in a window of a size, and forget what happened before."""
        phone = width < 500
        self.ask(
            'Emulation.setDeviceMetricsOverride', width=width, height=height,
            deviceScaleFactor=2 if phone else 1, mobile=phone,
        )  # fmt: skip
        self.events.clear()
        self.ask('Page.navigate', url=path.resolve().as_uri())
        deadline = time.monotonic() + TIMEOUT_S
        while not self._seen('Page.loadEventFired'):
            self._receive(deadline)

    def evaluate(self, script):
        """Return what a script of the page comes to."""
        answer = self.ask('Runtime.evaluate', expression=script, returnByValue=True)
        assert 'exceptionDetails' not in answer, answer
        return answer['result'].get('value')

    def complaints(self):
        """Return what the console and the browser said, and scripts that failed."""
        names = ('Runtime.exceptionThrown', 'Log.entryAdded', 'Runtime.consoleAPICalled')
        return [event for event in self.events if event['method'] in names]

    def requests(self):
        """Return the addresses that the page asked for, but those that hold their data."""
        asked = (e for e in self.events if e['method'] == 'Network.requestWillBeSent')
        addresses = [event['params']['request']['url'] for event in asked]
        return [address for address in addresses if not address.startswith('data:')]

    def screenshot(self, path, whole=True):
        """Write a PNG of the page, or of what the window shows of it."""
        answer = self.ask('Page.captureScreenshot', format='png', captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer['data']))

    def ask(self, method, **parameters):
        """Return the browser's answer to a command."""
        self._number += 1
        command = {'id': self._number, 'method': method, 'params': parameters}
        if self._session:
            command['sessionId'] = self._session
        os.write(self._out, json.dumps(command).encode() + b'\0')
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            answer = self._receive(deadline)
            if answer.get('id') == self._number:
                assert 'error' not in answer, answer
                return answer['result']

    def _seen(self, method):
        return any(event['method'] == method for event in self.events)

    def _receive(self, deadline):
        while b'\0' not in self._buffer:
            if not select.select([self._in], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError('the browser does not answer')
            data = os.read(self._in, 1 << 20)
            if not data:
                raise EOFError('the browser has ended')
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b'\0')
        content = json.loads(message)
        if 'method' in content:
            self.events.append(content)
        return content
