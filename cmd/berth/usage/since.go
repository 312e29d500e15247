// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/flags"
	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/metering"
)

// period are the flags that choose records of the past.
type period struct{ since, until string }

func (p *period) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.since, "since", "", "print what was used since then: a duration such as 1h or 30d, or a time such as 2006-01-02 or 2006-01-02T15:04:05Z")
	cmd.Flags().StringVar(&p.until, "until", "", "end of the period of --since, in the same forms (default: now)")
	_ = cmd.RegisterFlagCompletionFunc("since", cobra.FixedCompletions([]string{"1h", "24h", "7d", "30d"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("until", cobra.NoFileCompletions)
}

// pastOptions are the other flags, and the arguments.
type pastOptions struct {
	tenants          []string
	all              bool
	selector, output string
	noHeaders        bool
}

// runPast prints records of the past.
func runPast(cmd *cobra.Command, p *period, host *flags.Host, o pastOptions) error {
	show, err := recordPrinterOf(o.output, o.noHeaders)
	switch {
	case err != nil:
		return err
	case p.since == "":
		return fmt.Errorf("--until=%s: needs --since, too", p.until)
	case o.selector != "":
		return fmt.Errorf("--selector=%s: can't be used with --since; name the tenants", o.selector)
	case o.all && len(o.tenants) > 0:
		return errors.New("--all-tenants prints the usage of all tenants; don't name some")
	case host.Elsewhere():
		return errors.New("--since: the records are in the data directory of Berth; run the command where Berth runs, with --data-dir in place of a kubeconfig")
	}
	records, err := p.records(cmd.Context(), host.DataDir, o.tenants)
	if err != nil {
		return err
	}
	if len(records) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "No records found")
	}
	return show(cmd.OutOrStdout(), records)
}

// query returns what to read of the platform.
func (p *period) query(tenants []string, now time.Time) (url.Values, error) {
	since, err := parseTime("since", p.since, now)
	if err != nil {
		return nil, err
	}
	until := now
	if p.until != "" {
		if until, err = parseTime("until", p.until, now); err != nil {
			return nil, err
		}
	}
	if !since.Before(until) {
		if p.until == "" {
			return nil, fmt.Errorf("--since=%s: is in the future; choose an earlier time", p.since)
		}
		return nil, fmt.Errorf("--until=%s: must be after --since=%s; choose a later time", p.until, p.since)
	}
	return url.Values{"since": {since.UTC().Format(time.RFC3339)}, "until": {until.UTC().Format(time.RFC3339)}, "tenant": tenants}, nil
}

// records reads the records from the platform that runs on the data directory.
func (p *period) records(ctx context.Context, dir string, tenants []string) (records []metering.Record, err error) {
	query, err := p.query(tenants, time.Now())
	if err != nil {
		return nil, err
	}
	err = control.NewClient(dir).Do(ctx, http.MethodGet, "/usage?"+query.Encode(), &records)
	return records, err
}

// maxAge limits durations, so that they are valid times.
const maxAge = 100 * 365 * 24 * time.Hour

// parseTime parses a time, or how long it is ago.
func parseTime(flag, text string, now time.Time) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	ago, err := parseDuration(text)
	switch {
	case err != nil:
		return time.Time{}, fmt.Errorf("--%s=%s: must be a duration such as 90m, 12h, or 30d, or a time such as 2006-01-02 or 2006-01-02T15:04:05Z", flag, text)
	case ago < 0:
		return time.Time{}, fmt.Errorf("--%s=%s: is negative; a duration says how long ago the time is", flag, text)
	}
	return now.Add(-ago), nil
}

// parseDuration parses a duration in which d are days: 30d, 1d12h.
func parseDuration(text string) (time.Duration, error) {
	before, after, found := strings.Cut(text, "d")
	if !found {
		return time.ParseDuration(text)
	}
	days, err := strconv.ParseUint(before, 10, 16)
	if err != nil {
		return 0, err
	}
	rest := time.Duration(0)
	if after != "" {
		if rest, err = time.ParseDuration(after); err != nil {
			return 0, err
		}
	}
	total := time.Duration(days)*24*time.Hour + rest
	if days > uint64(maxAge/(24*time.Hour)) || rest < 0 {
		return 0, errors.New("out of range")
	}
	return total, nil
}
