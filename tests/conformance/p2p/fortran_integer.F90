! Rules FO1 to FO5 with mpif.h, or with the module mpi if USE_MODULE is defined: two processes, each group of calls.
program fortran_integer
#ifdef USE_MODULE
  use mpi
#define BINDING '_mpi_module'
#endif
  implicit none
#ifndef USE_MODULE
  include 'mpif.h'
#define BINDING '_mpif_h'
#endif
  integer, parameter :: rounds = 20, length = 5000
  integer :: rank, peer, ranks, provided, failures, error, comm, round, i
  integer, asynchronous :: values(length), others(length)

  call MPI_Init_thread(MPI_THREAD_FUNNELED, provided, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  call MPI_Comm_dup(MPI_COMM_WORLD, comm, error)
  call MPI_Comm_rank(comm, rank, error)
  peer = 1 - rank
  call blocking_calls()
  call requests_in_flight()
  call probes()
  call kept_requests()
  call types()
  call MPI_Comm_free(comm, error)
  call MPI_Finalize(error)

contains

  subroutine expect(is_good)
    logical, intent(in) :: is_good
    if (.not. is_good) failures = failures + 1
  end subroutine

  ! The status of a message of the peer.
  subroutine expect_status(status, tag, elements)
    integer, intent(in) :: status(MPI_STATUS_SIZE), tag, elements
    integer :: count
    logical :: cancelled
    call MPI_Get_count(status, MPI_INTEGER, count, error)
    call MPI_Test_cancelled(status, cancelled, error)
    call expect(status(MPI_SOURCE) == peer .and. status(MPI_TAG) == tag .and. count == elements .and. .not. cancelled)
  end subroutine

  ! After a completion: the compiler must read the array again.
  subroutine touch(array)
    integer, intent(inout) :: array(*)
    integer :: first
    first = array(1)
    if (first == -huge(first)) array(1) = first + 1
  end subroutine

  subroutine write_values(array, number)
    integer, intent(out) :: array(length)
    integer, intent(in) :: number
    array = [(1000 * number + 7 * i + rank, i = 1, length)]
  end subroutine

  ! The values that the peer has written.
  logical function are_right(array, number, elements)
    integer, intent(in) :: array(length), number, elements
    are_right = all(array(1:elements) == [(1000 * number + 7 * i + peer, i = 1, elements)])
  end function

  ! From which `tag` follows: a length of 1, 40 or all elements.
  integer function elements_of(tag)
    integer, intent(in) :: tag
    integer, parameter :: lengths(3) = [1, 40, length]
    elements_of = lengths(mod(tag, 3) + 1)
  end function

  subroutine report(rule)
    character(len=*), intent(in) :: rule
    integer :: worst
    call MPI_Reduce(failures, worst, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, error)
    if (rank == 0 .and. worst == 0) print '(3a)', 'ok ', rule, BINDING
    if (rank == 0 .and. worst > 0) print '(4a,i0,a)', 'not ok ', rule, BINDING, ': rank 0: wrong data: ', worst, ' failures'
    failures = 0
  end subroutine

  subroutine blocking_calls()
    integer :: status(MPI_STATUS_SIZE)
    failures = 0
    do round = 1, rounds
      call write_values(values, round)
      if (rank == 0) then
        call MPI_Send(values, elements_of(round), MPI_INTEGER, peer, round, comm, error)
        call MPI_Ssend(values, elements_of(round), MPI_INTEGER, peer, round, comm, error)
        call MPI_Recv(others, 1, MPI_INTEGER, peer, 0, comm, MPI_STATUS_IGNORE, error)
        call expect(are_right(others, round, 1))
      else
        others = 0
        call MPI_Recv(others, length, MPI_INTEGER, peer, round, comm, status, error)
        call expect_status(status, round, elements_of(round))
        call expect(are_right(others, round, elements_of(round)) .and. &
                    all(others(elements_of(round) + 1:) == 0))
        call MPI_Recv(others, length, MPI_INTEGER, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, status, error)
        call expect_status(status, round, elements_of(round))
        call MPI_Send(values, 1, MPI_INTEGER, peer, 0, comm, error)
      end if
      call MPI_Sendrecv(values, elements_of(round), MPI_INTEGER, peer, 3, others, length, MPI_INTEGER, peer, 3, comm, status, error)
      call expect_status(status, 3, elements_of(round))
      call expect(are_right(others, round, elements_of(round)))
      call MPI_Sendrecv_replace(values, elements_of(round), MPI_INTEGER, peer, 4, MPI_ANY_SOURCE, 4, comm, status, error)
      call expect_status(status, 4, elements_of(round))
      call expect(are_right(values, round, elements_of(round)))
      call MPI_Recv(others, length, MPI_INTEGER, MPI_PROC_NULL, 4, comm, status, error)
      call expect(status(MPI_SOURCE) == MPI_PROC_NULL .and. status(MPI_TAG) == MPI_ANY_TAG)
    end do
    call report('FO1')
  end subroutine

  subroutine requests_in_flight()
    integer, parameter :: many = 6
    integer, asynchronous :: sent(many), got(many)
    integer :: requests(2 * many), statuses(MPI_STATUS_SIZE, 2 * many), status(MPI_STATUS_SIZE), indices(2 * many)
    integer :: index, outcount, left
    logical :: flag
    do round = 1, rounds
      got = -1
      do i = 1, many
        sent(i) = 100 * round + 10 * i + rank
        call MPI_Irecv(got(i), 1, MPI_INTEGER, peer, i, comm, requests(i), error)
      end do
      do i = many, 1, -1
        if (mod(i, 2) == 0) call MPI_Isend(sent(i), 1, MPI_INTEGER, peer, i, comm, requests(many + i), error)
        if (mod(i, 2) == 1) call MPI_Issend(sent(i), 1, MPI_INTEGER, peer, i, comm, requests(many + i), error)
      end do
      select case (mod(round, 7))
      case (0)
        call MPI_Waitall(2 * many, requests, statuses, error)
        do i = 1, many
          call expect_status(statuses(1, i), i, 1)
        end do
      case (1)
        call MPI_Waitall(2 * many, requests, MPI_STATUSES_IGNORE, error)
      case (2)
        do left = 1, 2 * many
          call MPI_Waitany(2 * many, requests, index, status, error)
          call expect(index >= 1 .and. index <= 2 * many)
          if (index <= many) call expect_status(status, index, 1)
        end do
        call MPI_Waitany(2 * many, requests, index, status, error)
        call expect(index < 1)  ! MPI_UNDEFINED; MPICH 4 adds 1 to it
      case (3)
        left = 2 * many
        do while (left > 0)
          call MPI_Waitsome(2 * many, requests, outcount, indices, statuses, error)
          do i = 1, outcount
            if (indices(i) <= many) call expect_status(statuses(1, i), indices(i), 1)
          end do
          left = left - outcount
        end do
      case (4)
        flag = .false.
        do while (.not. flag)
          call MPI_Testall(2 * many, requests, flag, statuses, error)
        end do
        call expect_status(statuses(1, 2), 2, 1)
      case (5)
        do i = 1, 2 * many
          flag = .false.
          do while (.not. flag)
            call MPI_Request_get_status(requests(i), flag, status, error)
          end do
          if (i <= many) call expect_status(status, i, 1)
          call MPI_Test(requests(i), flag, status, error)
          call expect(flag)
        end do
      case default
        do i = 1, 2 * many
          call MPI_Wait(requests(i), status, error)
          if (i <= many) call expect_status(status, i, 1)
        end do
      end select
      call touch(got)
      call expect(all(got == [(100 * round + 10 * i + peer, i = 1, many)]))
      call expect(all(requests == MPI_REQUEST_NULL))
    end do
    call report('FO2')
  end subroutine

  subroutine probes()
    integer :: status(MPI_STATUS_SIZE), message, request, matched, count
    logical :: flag
    do round = 1, rounds
      call write_values(values, round)
      call MPI_Isend(values, elements_of(round), MPI_INTEGER, peer, round, comm, request, error)
      flag = .false.
      select case (mod(round, 4))
      case (0)
        call MPI_Probe(peer, MPI_ANY_TAG, comm, status, error)
        call MPI_Get_count(status, MPI_INTEGER, count, error)
        call MPI_Recv(others, count, MPI_INTEGER, status(MPI_SOURCE), status(MPI_TAG), comm, MPI_STATUS_IGNORE, error)
      case (1)
        do while (.not. flag)
          call MPI_Iprobe(MPI_ANY_SOURCE, round, comm, flag, status, error)
        end do
        call MPI_Recv(others, length, MPI_INTEGER, peer, round, comm, MPI_STATUS_IGNORE, error)
      case (2)
        call MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, message, status, error)
        call MPI_Mrecv(others, length, MPI_INTEGER, message, MPI_STATUS_IGNORE, error)
        call expect(message == MPI_MESSAGE_NULL)
      case (3)
        do while (.not. flag)
          call MPI_Improbe(peer, round, comm, flag, message, status, error)
        end do
        call MPI_Imrecv(others, length, MPI_INTEGER, message, matched, error)
        call MPI_Wait(matched, MPI_STATUS_IGNORE, error)
      end select
      call expect_status(status, round, elements_of(round))
      call MPI_Wait(request, MPI_STATUS_IGNORE, error)
      call touch(others)
      call expect(are_right(others, round, elements_of(round)))
    end do
    call report('FO3')
  end subroutine

  ! Persistent requests, buffered sends, cancels.
  subroutine kept_requests()
    integer :: requests(3), statuses(MPI_STATUS_SIZE, 3), status(MPI_STATUS_SIZE), request, size
    integer, allocatable :: buffer(:), detached(:)
    integer :: three(3)
    logical :: flag
    call MPI_Send_init(values, length, MPI_INTEGER, peer, 1, comm, requests(1), error)
    call MPI_Ssend_init(values, 3, MPI_INTEGER, peer, 2, comm, requests(2), error)
    call MPI_Recv_init(others, length, MPI_INTEGER, peer, 1, comm, requests(3), error)
    do round = 1, rounds
      call write_values(values, round)
      if (mod(round, 2) == 0) call MPI_Startall(3, requests, error)
      if (mod(round, 2) == 1) then
        do i = 1, 3
          call MPI_Start(requests(i), error)
        end do
      end if
      call MPI_Recv(three, 3, MPI_INTEGER, peer, 2, comm, status, error)
      call expect_status(status, 2, 3)
      call MPI_Waitall(3, requests, statuses, error)
      call touch(others)
      call expect_status(statuses(1, 3), 1, length)
      call expect(are_right(others, round, length) .and. all(requests /= MPI_REQUEST_NULL))
    end do
    do i = 1, 3
      call MPI_Request_free(requests(i), error)
    end do
    call MPI_Pack_size(length, MPI_INTEGER, comm, size, error)
    size = size + MPI_BSEND_OVERHEAD
    allocate (buffer(size / 4 + 1), detached(1))
    call MPI_Buffer_attach(buffer, size, error)
    do round = 1, rounds
      call write_values(values, round)
      call MPI_Bsend(values, length, MPI_INTEGER, peer, 5, comm, error)
      values = 0
      call MPI_Recv(others, length, MPI_INTEGER, peer, 5, comm, status, error)
      call expect(are_right(others, round, length))
      call MPI_Barrier(comm, error)
      if (mod(round, 5) == 0) then
        call MPI_Buffer_detach(detached, size, error)
        call MPI_Buffer_attach(buffer, size, error)
      end if
    end do
    call MPI_Buffer_detach(detached, size, error)
    do round = 1, rounds
      call MPI_Irecv(others, length, MPI_INTEGER, peer, 99, comm, request, error)
      call MPI_Cancel(request, error)
      call MPI_Wait(request, status, error)
      call MPI_Test_cancelled(status, flag, error)
      call expect(flag)
    end do
    call report('FO4')
  end subroutine

  ! Fortran's own types; a derived type that is freed while its message is in flight; MPI_BOTTOM.
  subroutine types()
    double precision :: doubles(10), more_doubles(10)
    complex :: complexes(5), more_complexes(5)
    logical :: truths(4), more_truths(4)
    character(len=20) :: text, more_text
    integer :: requests(2), stride, whole, basic
    integer(kind=MPI_ADDRESS_KIND) :: address
    do round = 1, rounds
      doubles = [(0.5d0 * i + round + rank, i = 1, 10)]
      call MPI_Sendrecv(doubles, 10, MPI_DOUBLE_PRECISION, peer, 1, more_doubles, 10, MPI_DOUBLE_PRECISION, peer, 1, comm, &
                        MPI_STATUS_IGNORE, error)
      call expect(all(more_doubles == doubles - rank + peer))
      complexes = [(cmplx(i, round + rank), i = 1, 5)]
      call MPI_Sendrecv(complexes, 5, MPI_COMPLEX, peer, 2, more_complexes, 5, MPI_COMPLEX, peer, 2, comm, MPI_STATUS_IGNORE, error)
      call expect(all(more_complexes == [(cmplx(i, round + peer), i = 1, 5)]))
      truths = [rank == 0, rank == 1, .true., .false.]
      call MPI_Sendrecv(truths, 4, MPI_LOGICAL, peer, 3, more_truths, 4, MPI_LOGICAL, peer, 3, comm, MPI_STATUS_IGNORE, error)
      call expect(all(more_truths .eqv. [peer == 0, peer == 1, .true., .false.]))
      write (text, '(a,i0,a,i0)') 'of rank ', rank, ' in ', round
      more_text = ' '
      call MPI_Sendrecv(text, 20, MPI_CHARACTER, peer, 4, more_text, 20, MPI_CHARACTER, peer, 4, comm, MPI_STATUS_IGNORE, error)
      write (text, '(a,i0,a,i0)') 'of rank ', peer, ' in ', round
      call expect(more_text == text)
      ! Each second element, as one type that ends before its messages do.
      call write_values(values, round)
      others = 0
      call MPI_Type_vector(length / 2, 1, 2, MPI_INTEGER, stride, error)
      call MPI_Type_commit(stride, error)
      call MPI_Irecv(others, 1, stride, peer, 5, comm, requests(1), error)
      call MPI_Isend(values, 1, stride, peer, 5, comm, requests(2), error)
      call MPI_Type_free(stride, error)
      call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, error)
      call touch(others)
      do i = 1, length, 2
        call expect(others(i) == 1000 * round + 7 * i + peer .and. others(i + 1) == 0)
      end do
      call MPI_Get_address(values, address, error)
      call MPI_Type_create_hindexed(1, [length], [address], MPI_INTEGER, whole, error)
      call MPI_Type_commit(whole, error)
      basic = MPI_INTEGER
      call MPI_Isend(MPI_BOTTOM, 1, whole, peer, 6, comm, requests(1), error)
      call MPI_Type_free(whole, error)
      call MPI_Recv(others, length, basic, peer, 6, comm, MPI_STATUS_IGNORE, error)
      call MPI_Wait(requests(1), MPI_STATUS_IGNORE, error)
      call expect(are_right(others, round, length))
    end do
    call report('FO5')
  end subroutine
end program
