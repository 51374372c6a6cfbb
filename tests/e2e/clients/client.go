// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The calls of a JSON file by Go's net/http; the format is that of client.py. "concurrency": that many at a time.
// With "ca" over TLS, by HTTP/1.1 or ("http2") HTTP/2; else plain.
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
)

type call struct {
	Path    string            `json:"path"`
	Body    json.RawMessage   `json:"body"`
	Headers map[string]string `json:"headers"`
}

type config struct {
	Port        int    `json:"port"`
	CA          string `json:"ca"`
	HTTP2       bool   `json:"http2"`
	Wait        bool   `json:"wait"`
	Concurrency int    `json:"concurrency"`
	Calls       []call `json:"calls"`
}

func makeClient(cfg config) (*http.Client, error) {
	if cfg.CA == "" {
		return http.DefaultClient, nil
	}
	pem, err := os.ReadFile(cfg.CA)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificate", cfg.CA)
	}
	// Go compares no address with a certificate's common name.
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: roots},
		ForceAttemptHTTP2:   cfg.HTTP2,
		MaxIdleConnsPerHost: cfg.Concurrency,
	}
	return &http.Client{Transport: transport}, nil
}

func makeCall(client *http.Client, base string, c call) {
	request, err := http.NewRequest("POST", base+c.Path, bytes.NewReader(c.Body))
	if err != nil {
		fmt.Println(err)
		return
	}
	request.Header.Set("content-type", "application/json")
	for name, value := range c.Headers {
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		fmt.Println(err)
		return
	}
	n, _ := io.Copy(io.Discard, response.Body)
	response.Body.Close()
	fmt.Println(response.StatusCode, n)
}

func main() {
	var cfg config
	text, err := os.ReadFile(os.Args[1])
	if err == nil {
		err = json.Unmarshal(text, &cfg)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if cfg.Wait {
		fmt.Println("pid", os.Getpid())
		if !bufio.NewScanner(os.Stdin).Scan() {
			os.Exit(3)
		}
	}
	if cfg.Concurrency < 1 {
		cfg.Concurrency = 1
	}
	client, err := makeClient(cfg)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	scheme := "http"
	if cfg.CA != "" {
		scheme = "https"
	}
	base := fmt.Sprintf("%s://127.0.0.1:%d", scheme, cfg.Port)
	queue := make(chan call)
	var workers sync.WaitGroup
	for i := 0; i < cfg.Concurrency; i++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for c := range queue {
				makeCall(client, base, c)
			}
		}()
	}
	for _, c := range cfg.Calls {
		queue <- c
	}
	close(queue)
	workers.Wait()
}
