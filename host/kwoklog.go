// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"encoding/json"

	"k8s.io/klog/v2"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
)

// withKwokLog returns a context in which kwok logs its warnings and errors to
// the context's own logger. Without it kwok logs every patch to the process's
// default logger.
func withKwokLog(ctx context.Context) context.Context {
	sink := kwokSink{ctx: ctx, log: klog.FromContext(ctx).WithName("kwok")}
	return kwoklog.NewContext(ctx, kwoklog.NewLogger(sink, kwoklog.LevelWarn))
}

// kwokSink takes the JSON lines that kwok's logger writes: a writer is all that
// logger can be given.
type kwokSink struct {
	ctx context.Context
	log klog.Logger
}

func (s kwokSink) Write(line []byte) (int, error) {
	if s.ctx.Err() != nil {
		return len(line), nil // requests cut off by a stop are no news
	}
	var record struct {
		Level, Msg, Err, Stage, Pod, Node string
	}
	if err := json.Unmarshal(line, &record); err != nil {
		s.log.Info(string(line))
		return len(line), nil
	}
	s.log.Info(record.Msg, "level", record.Level, "err", record.Err, "stage", record.Stage, "pod", record.Pod, "node", record.Node)
	return len(line), nil
}
