package testserver

// Kill ends the server with SIGKILL and returns when it is gone. Killing a dead server does
// nothing.
func (s *Server) Kill() {
	s.tb.Helper()
	s.refuseIfShared("Kill")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc.kill()
}

// Add adds arguments for the next starts.
func (s *Server) Add(args ...string) {
	s.refuseIfShared("Add")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg.args = append(s.cfg.args, args...)
}

// Use has the next starts be of another program.
func (s *Server) Use(program string) {
	s.refuseIfShared("Use")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg.program = program
}

// Restart starts the server again on the same port and in the same directory, after Kill if it
// runs. What it held in memory is gone, unless it was started with arguments that persist.
func (s *Server) Restart() {
	s.tb.Helper()
	s.refuseIfShared("Restart")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc.kill()
	if err := s.start(); err != nil {
		s.tb.Fatalf("testserver: restart: %v\n%s", err, tail(s.log.read()))
	}
}

// Stop freezes the server with SIGSTOP: connections stay, nothing answers. It has taken effect when
// Stop returns.
func (s *Server) Stop() {
	s.tb.Helper()
	s.refuseIfShared("Stop")
	if err := s.current().stop(); err != nil {
		s.tb.Fatalf("testserver: stop: %v", err)
	}
}

// Cont lets a stopped server run on.
func (s *Server) Cont() {
	s.tb.Helper()
	if err := s.current().cont(); err != nil {
		s.tb.Fatalf("testserver: cont: %v", err)
	}
}

func (s *Server) refuseIfShared(verb string) {
	s.tb.Helper()
	if s.shared {
		s.tb.Fatalf("testserver: %s on the shared server would break other tests: use Redis(t)",
			verb)
	}
}
