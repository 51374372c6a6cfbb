// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Load on crypto/tls itself: many goroutines, each with a connection of its own, whose calls run on stacks that are small and
// have to grow: every call is made by a new goroutine, at another depth, so that sooner or later each frame of Read and
// Write is the one that moves the stack.
//
// load.go CONFIG.json: {"port", "ca", "wait", "goroutines", "seconds", "calls": at most so many a goroutine (0: no limit),
// "path", "body"}. Prints "calls N" at the end; exit status 1 when an answer was wrong.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

type config struct {
	Port       int             `json:"port"`
	CA         string          `json:"ca"`
	Wait       bool            `json:"wait"`
	Goroutines int             `json:"goroutines"`
	Seconds    float64         `json:"seconds"`
	Calls      int             `json:"calls"`
	Path       string          `json:"path"`
	Body       json.RawMessage `json:"body"`
}

type worker struct {
	number     int
	connection *tls.Conn
	reader     *bufio.Reader
	read       int
}

var made, failed int64

func roots(path string) *x509.CertPool {
	pool := x509.NewCertPool()
	pem, err := os.ReadFile(path)
	if err != nil || !pool.AppendCertsFromPEM(pem) {
		fmt.Println("no certificate:", path, err)
		os.Exit(1)
	}
	return pool
}

// Each level takes some 200 bytes of stack, and touches them.
func atDepth(depth int, f func() error) error {
	var room [128]byte
	if depth == 0 {
		return f()
	}
	room[depth%len(room)] = byte(depth)
	err := atDepth(depth-1, f)
	if room[depth%len(room)] != byte(depth) {
		return fmt.Errorf("the stack was damaged at depth %d", depth)
	}
	return err
}

func onNewStack(depth int, f func() error) error {
	result := make(chan error)
	go func() { result <- atDepth(depth, f) }()
	return <-result
}

func (w *worker) write(text string) error {
	bytes := []byte(text)
	n, err := w.connection.Write(bytes)
	runtime.KeepAlive(bytes) // as clients' own buffers live on: one that is collected before Write returns is lost, and counted
	if err == nil && n != len(text) {
		err = fmt.Errorf("%d of %d bytes written", n, len(text))
	}
	return err
}

// Read is the connection's, on a new stack each time.
func (w *worker) Read(p []byte) (n int, err error) {
	w.read++
	_ = onNewStack((w.number+7*w.read)%60, func() error {
		n, err = w.connection.Read(p)
		return err
	})
	return n, err
}

func (w *worker) call(cfg *config, i int) error {
	path := strings.Replace(cfg.Path, "%", fmt.Sprintf("%d-%d", w.number, i), 1)
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n",
		path, len(cfg.Body))
	err := onNewStack((3*w.number+i)%60, func() error { return w.write(head + string(cfg.Body)) })
	if err != nil {
		return err
	}
	response, err := http.ReadResponse(w.reader, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	n, err := io.Copy(io.Discard, response.Body)
	if err == nil && (response.StatusCode != 200 || n == 0) {
		err = fmt.Errorf("status %d, %d bytes", response.StatusCode, n)
	}
	return err
}

func (w *worker) run(cfg *config, settings *tls.Config, end time.Time) error {
	connection, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", cfg.Port), settings)
	if err != nil {
		return err
	}
	defer connection.Close()
	w.connection = connection
	w.reader = bufio.NewReaderSize(w, 512)
	for i := 0; (cfg.Calls == 0 || i < cfg.Calls) && time.Now().Before(end); i++ {
		if err := w.call(cfg, i); err != nil {
			return err
		}
		atomic.AddInt64(&made, 1)
	}
	return nil
}

func main() {
	cfg := config{Goroutines: 64, Seconds: 10}
	text, err := os.ReadFile(os.Args[1])
	if err == nil {
		err = json.Unmarshal(text, &cfg)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	settings := &tls.Config{RootCAs: roots(cfg.CA)}
	if cfg.Wait {
		fmt.Println("pid", os.Getpid())
		if !bufio.NewScanner(os.Stdin).Scan() {
			os.Exit(3)
		}
	}
	end := time.Now().Add(time.Duration(cfg.Seconds * float64(time.Second)))
	var workers sync.WaitGroup
	for i := 0; i < cfg.Goroutines; i++ {
		workers.Add(1)
		go func(number int) {
			defer workers.Done()
			w := worker{number: number}
			if err := w.run(&cfg, settings, end); err != nil {
				fmt.Println("goroutine", number, err)
				atomic.AddInt64(&failed, 1)
			}
		}(i)
	}
	workers.Wait()
	fmt.Println("calls", made)
	if failed > 0 {
		os.Exit(1)
	}
}
