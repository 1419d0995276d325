package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"basalt.dev/basalt/api/certs/issue"
	"basalt.dev/basalt/api/metric/metrictest"
	"basalt.dev/basalt/api/serve"
)

// A process that keeps certificates shows when they expire, and that it fails: it is not ready, and the time of the
// last check that succeeded stays.
func TestCertsMetrics(t *testing.T) {
	dir := t.TempDir()
	blocked := filepath.Join(dir, issue.SecretMetrics)
	if err := os.WriteFile(blocked, nil, 0o600); err != nil { // a file where a folder is to be
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := prometheus.NewRegistry()
		one := func(name string) float64 {
			t.Helper()
			got := metrictest.Samples(t, r, name)
			if len(got) != 1 {
				t.Fatalf("%s: %v", name, got)
			}
			return got[""]
		}
		var log strings.Builder
		k := keeper{store: issue.Directory(dir), every: time.Hour, log: slog.New(slog.NewTextHandler(&log, nil))}
		if err := k.ready(); err == nil {
			t.Error("it is ready before it has checked anything")
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- k.run(ctx, serve.Options{Registry: r}) }()
		time.Sleep(2*certsAgain + time.Second)
		synctest.Wait()
		if err := k.ready(); err == nil || !strings.Contains(err.Error(), issue.SecretMetrics) {
			t.Errorf("it fails, and is ready: %v", err)
		}
		failures, checked := one("basalt_certs_failures_total"), one("basalt_certs_check_timestamp_seconds")
		if failures != 3 || checked != 0 {
			t.Errorf("%g failures in three checks, the last that succeeded at %g", failures, checked)
		}
		if err := os.Remove(blocked); err != nil {
			t.Fatal(err)
		}
		time.Sleep(certsAgain)
		synctest.Wait()
		now := float64(time.Now().Unix())
		if err := k.ready(); err != nil || now-one("basalt_certs_check_timestamp_seconds") > certsAgain.Seconds() {
			t.Errorf("%v, checked %g at %g", err, one("basalt_certs_check_timestamp_seconds"), now)
		}
		expiry := metrictest.Samples(t, r, "basalt_certificate_expiry_timestamp_seconds")
		for secret, days := range map[string]float64{issue.SecretCA: 3650, issue.SecretShard: 90, issue.SecretEtcdPeer: 90} {
			if left := (expiry[secret+" "] - now) / 86400; left < days-1 || left > days {
				t.Errorf("%s expires in %g days, want %g", secret, left, days)
			}
		}
		if len(expiry) != 6 {
			t.Errorf("%v", expiry)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	k := keeper{store: issue.Directory(filepath.Join(dir, "other")), options: issue.Options{KeysOnly: true},
		log: slog.New(slog.DiscardHandler)}
	if err := k.check(t.Context()); err != nil { // once, without metrics
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "other", issue.SecretCA)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("keys only, and there is a CA: %v", err)
	}
}
