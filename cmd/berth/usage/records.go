// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-dev/berth/metering"
	"github.com/berth-dev/berth/metrics"
)

// recordPrinterOf returns what prints records in a format.
func recordPrinterOf(format string, noHeaders bool) (func(out io.Writer, records []metering.Record) error, error) {
	if template, ok := strings.CutPrefix(format, formatJSONPath); ok {
		return jsonPathPrinter[[]metering.Record](template)
	}
	switch format {
	case "", formatTable:
		return func(out io.Writer, records []metering.Record) error {
			return printRecordTable(out, byTenant(records), !noHeaders, false)
		}, nil
	case formatWide:
		return func(out io.Writer, records []metering.Record) error {
			return printRecordTable(out, records, !noHeaders, true)
		}, nil
	case formatCSV:
		return func(out io.Writer, records []metering.Record) error { return printRecordCSV(out, records, !noHeaders) }, nil
	case formatJSON:
		return func(out io.Writer, records []metering.Record) error { return printJSON(out, records) }, nil
	case formatYAML:
		return func(out io.Writer, records []metering.Record) error { return printYAML(out, records) }, nil
	default:
		return nil, fmt.Errorf("--output=%s: with --since, must be one of table, wide, csv, json, yaml, jsonpath=..., with a template after the last one", format)
	}
}

// byTenant returns the sums of records of each tenant. The records are sorted by tenant. Objects are the average of all spaces together.
func byTenant(records []metering.Record) (sums []metering.Record) {
	for _, r := range records {
		if n := len(sums); n == 0 || sums[n-1].Tenant != r.Tenant {
			sums = append(sums, metering.Record{Tenant: r.Tenant})
		}
		sum := &sums[len(sums)-1]
		if r.Space != metering.Others || sum.MeasuredHours == 0 { // others are several spaces
			sum.MeasuredHours = max(sum.MeasuredHours, r.MeasuredHours)
		}
		sum.CPUHours += r.CPUHours
		sum.MemoryGiBHours += r.MemoryGiBHours
		sum.StorageGiBHours += r.StorageGiBHours
		sum.ObjectHours += r.ObjectHours
		sum.Requests += r.Requests
		sum.ReceivedBytes += r.ReceivedBytes
		sum.SentBytes += r.SentBytes
		sum.Calls = append(sum.Calls, r.Calls...)
		if sum.MeasuredHours > 0 {
			sum.Objects = sum.ObjectHours / sum.MeasuredHours
		}
	}
	return sums
}

func printRecordTable(out io.Writer, records []metering.Record, headers, wide bool) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	if headers && len(records) > 0 {
		columns := "TENANT\tREQUESTS\tERRORS\tCPU-H\tMEMORY-GIB-H\tSTORAGE-GIB-H\tOBJECTS\tMEASURED"
		if wide {
			columns = strings.Replace(columns, "\t", "\tSPACE\t", 1) + "\tRECEIVED\tSENT\tLATENCY\tPOD-H\tSTORE-GIB-H"
		}
		fmt.Fprintln(table, columns)
	}
	for i := range records {
		r := &records[i]
		columns := []string{cmp.Or(r.Tenant, "-")}
		if wide {
			columns = append(columns, r.Space)
		}
		columns = append(columns, strconv.FormatInt(r.Requests, 10), strconv.FormatInt(countClass(r, 5)+countClass(r, 0), 10),
			short(r.CPUHours), short(r.MemoryGiBHours), short(r.StorageGiBHours), strconv.FormatFloat(r.Objects, 'f', 0, 64), short(r.MeasuredHours)+"h")
		if wide {
			latency := "-"
			if r.TimedRequests > 0 {
				latency = time.Duration(r.RequestSeconds / float64(r.TimedRequests) * float64(time.Second)).Round(100 * time.Microsecond).String()
			}
			columns = append(columns, bytesOf(r.ReceivedBytes), bytesOf(r.SentBytes), latency, short(r.PodHours), short(r.StoreGiBHours))
		}
		fmt.Fprintln(table, strings.Join(columns, "\t"))
	}
	return table.Flush()
}

// short writes a number for people.
func short(n float64) string { return strconv.FormatFloat(n, 'f', 2, 64) }

func bytesOf(n int64) string {
	if n < 1<<20 {
		return strconv.FormatInt((n+1023)/1024, 10) + "Ki"
	}
	return resource.NewQuantity((n+(1<<20)-1)>>20<<20, resource.BinarySI).String()
}

// countClass counts requests by the first digit of their status code; 0 are those without a whole response.
func countClass(r *metering.Record, class int) (n int64) {
	for _, call := range r.Calls {
		if call.Code/100 == class {
			n += call.Count
		}
	}
	return n
}

func countVerb(r *metering.Record, verb string) (n int64) {
	for _, call := range r.Calls {
		if call.Verb == verb {
			n += call.Count
		}
	}
	return n
}

func printRecordCSV(out io.Writer, records []metering.Record, headers bool) error {
	verbs := metrics.Verbs()
	classes := []string{"aborted", "1xx", "2xx", "3xx", "4xx", "5xx"}
	lines := [][]string{}
	if headers {
		header := []string{
			"tenant", "space", "from", "until", "measured_hours", "cpu_hours", "memory_gib_hours", "storage_gib_hours", "pod_hours", "object_hours",
			"store_gib_hours", "requests", "received_bytes", "sent_bytes", "timed_requests", "request_seconds",
		}
		for _, name := range append(verbs, classes...) {
			header = append(header, "requests_"+name)
		}
		lines = append(lines, header)
	}
	for i := range records {
		r := &records[i]
		line := []string{r.Tenant, r.Space, r.From.Format(time.RFC3339), r.Until.Format(time.RFC3339)}
		for _, n := range []float64{r.MeasuredHours, r.CPUHours, r.MemoryGiBHours, r.StorageGiBHours, r.PodHours, r.ObjectHours, r.StoreGiBHours} {
			line = append(line, number(&n))
		}
		for _, n := range []int64{r.Requests, r.ReceivedBytes, r.SentBytes, r.TimedRequests} {
			line = append(line, strconv.FormatInt(n, 10))
		}
		line = append(line, number(&r.RequestSeconds))
		for _, verb := range verbs {
			line = append(line, strconv.FormatInt(countVerb(r, verb), 10))
		}
		for class := range classes {
			line = append(line, strconv.FormatInt(countClass(r, class), 10))
		}
		lines = append(lines, line)
	}
	return csv.NewWriter(out).WriteAll(lines)
}
